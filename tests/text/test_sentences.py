"""Where a sentence ends, in both languages; | stands where one does."""

from minitf.text.sentences import sentences

CASES = """
B. A. Hill wrote two books. | R. T. I. Moss wrote none.
Heat it to 200 °C. | Stir 1 tbsp. Butter into 2 cups of milk.
There are plans A, B and C. | Plan C is the cheapest.
"Where?" I asked. | "Here!" Anna answered.
See para. 3 of the contract (Urt. v. 3.4.2012, Az. IV ZR 7/12). | It is short.
I am at the bar 🍺 | Can you come? | Bin da ☀️ | Habt ihr Zeit?
We love 🍕 Pizza.
Der Brief geht z. Hd. Frau Hill ans Amt.
On Jan. 5 we left. | We came back on Feb. 3.
He lives in the U.S.A. | She does not.
We met at 5 p.m. | Then we ate.
He lives in Washington, D.C. | He likes it.
The U.S. Army came.
It opens at 9 a.m. on Monday.
Mr. and Mrs. Hill left. | Dr. Who stayed.
"Go!" she said.
"Go!" | He went.
Wait... I am coming.
We need nails, screws, etc. for it.
See p. 5 and pp. 7 to 9.
J. K. Rowling wrote it. | I read it.
The price is $3.50. | That is a lot.
Yahoo! is a firm.
That is it, i.e. the end.
Some fruit, e.g. Apples, is good.
He said so. | "I know."
(He left.) | We stayed.
What?! | No way.
He lives at 5 Elm St. in Leeds.
I have a Ph.D. in law.
I have a Ph.D. | She has none.
It was he and I. | They left.
Wir wohnen in der Goethestr. 5 in Ulm.
Äpfel, Birnen usw. sind Obst.
Obst, z. B. Äpfel, ist gut.
Er kam, d.h. Er wollte kommen.
Er kam u.a. Nach Rom.
Im 19. Jahrhundert war das so.
Die Fa. Otto GmbH & Co. KG liefert.
Dipl.-Ing. Meier kam.
„Geh!“, sagte er.
Am 5.10. war er da.
Er kam am 5. | Sie kam am 6.
Ludwig XIV. war König.
J. S. Bach lebte hier.
Vom 5. bis 7. Mai ist frei.
Das ist o. k. für mich.
Er sagte: „Ja.“ | Dann ging er.
Das ist i. d. R. Unsinn.
Bitte wenden, s. S. 5.
Er kam 24. 12. 2010 zu uns. | Dann ging er.
Das war im 18. und 19. Jahrhundert so.
Er liegt an 4. Stelle.
Bis zum 15. Mai. | Danke.
Das steht bei Meier et al. 1987.
1. Wash the car. | 2. Clean the house. | 3. Rest.
1.) Wash the car. | 2.) Rest.
• 1. Wash the car.
Who is it? | It is I. | Good.
Albert I. Jones came.
Give me an A. | Tom left.
I... I do not know.
He came . . . and went. | So?
Happy? ... | No one came.
He came ("so it [...] Tom is") late.
Come on! ! | Go.
We came at 6 P.M. | Tom left.
At 6 p.m. Tom left.
Around midnight 12:30 p.m. Tom left.
It ends at 6 p.m. Eastern time.
I like it. | iPhone is its name.
It was in 50 B.C. | Rome was small.
He is 6 ft. 5 in. tall.
It is so.[1] | He knew it.[2][3] | We did not.
"Is it so?" Tom asked.
Is it so?"
He came.| Then he left.
i am here. | you are not. | we left at 5 p.m. today, i.e. late.
he said "no." then he left.
Der 3. Oktober ist ein Feiertag. | Am 24. Dezember ist es kalt.
He was born in 1994. | He sings.
I have 12. | She has 15.
Wir wohnen seit zwei Jahren im 5. Stock dieses Hauses.
Der 2. Weltkrieg war nach ihrem 30. Geburtstag zu Ende. | Gut.
Das war das 3. Mal. | Er hat nur 3. | Sie hat sein 5. Buch.
I am 5. | He is 6. | Am 5. Tag sang er.
Im 2000. | Haus
Wir sahen den Mt. Fuji ca. 30 Tage, bzw. Tom, auf Abb. 3 in Nr. 5.
We saw No. 5 in Fig. 3. | He said No. | Then he left.
We met at 7 a.m. Monday in the old house.
А. С. Пушкин любил сыр и т. д. в магазине.
Είδα τον Κ. Π. Καβάφη.
ח. נ. ביאליק.
W domu są m.in. światła, np. żarówki.
Я живу здесь… но не там.
Я живу здесь. | Он живёт там.
This car is Tom's. | I don't. | We can’t. | So?
ते येथे आहेत. | ते तेथे आहेत.
네. | 알겠습니다.
他来了。 | ok 吗
""".strip().split("\n")


def test_where_sentences_end():
    wrong = []
    for case in CASES:
        expected = case.replace(".| ", ". | ").split(" | ")  # with a space, or without one
        text = case.replace(" | ", " ").replace("| ", "")
        found = sentences(text)
        assert "".join(found) == text
        if [text.strip() for text in found] != expected:
            wrong.append(case)
    assert not wrong
