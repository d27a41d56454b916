#!/usr/bin/env bash
# Train a bundled model again, on other texts than its own, to see what they are worth.
#
#     examples/models/trainings.sh sources DIRECTION MONO BACK OUT [OPTIONS OF THE TRAINER]
#     examples/models/trainings.sh anew DIRECTION MONO BACK OUT [OPTIONS OF THE TRAINER]
#
# sources: four short trainings side by side, on the whole text and without each of its sources (phrases, back-translation, the
#   pairs that prepare.py makes). Their difference is what that source is worth.
# anew: one training, on the text and, after it, on the same sources as the models in TEACHERS translate them (a list of folders;
#   without it the bundled model). A text that models wrote is more regular, and so easier to learn (Kim and Rush 2016).
#
# DIRECTION: en-de or de-en. MONO, BACK: sentences of the target language, and their translations, as prepare.py takes them.
# On a GPU, set MINITF_BACKEND=cupy, and add --precision tf32. QUICK=1 trains tiny models for two updates: to see that it runs.
# OUT gets a folder and a log for each training; `judge.py score` compares the models. Each training is a process group of its own;
#   if this program is stopped, they end.
set -euo pipefail
[ $# -ge 5 ] || { sed -n '4,5p' "$0" >&2; exit 2; }
task=$1 direction=$2 mono=$3 back=$4 out=$5
shift 5
here=$(cd "$(dirname "$0")" && pwd)
corpus=${MINITF_DATA:-$HOME/.cache/minitf}/tatoeba-en-de
source=${direction%-*} target=${direction#*-}
recipe=(
    --preset small --set n_layers=6 --set n_decoder_layers=2 --set d_model=320 --set d_ff=608 --set n_heads=5 --set dropout=0.2
    --set norm=pre --vocabulary-size 6000 --batch-tokens 8192 --warmup-steps 1500 --learning-rate 1.5 --cooldown 0.35 --average 8
    --save-every 300
)
steps=6000 read=1000000  # updates, and lines that the teachers translate
if [ -n "${QUICK:-}" ]; then
    recipe=(--set n_layers=1 --set d_model=8 --set d_ff=8 --set n_heads=2 --vocabulary-size 700 --batch-tokens 100)
    steps=2 read=3
fi
groups=()
trap 'for group in "${groups[@]}"; do kill -- "-$group" 2> /dev/null || true; done' EXIT
trap 'exit 1' INT TERM

train() { # NAME TEXT UPDATES [OPTIONS]
    local name=$1 text=$2 updates=$3
    shift 3
    setsid python3 -m minitf train "${recipe[@]}" --steps "$updates" --train "$text/train.$source" "$text/train.$target" \
        --valid "$corpus/val.$source" "$corpus/val.$target" --valid-every 100000 --patience 0 --out "$out/$name" "$@" \
        > "$out/$name.log" 2>&1 &
    groups+=($!)
}

mkdir -p "$out"
prepare() { python3 "$here/prepare.py" "$direction" "$@" > /dev/null; }
prepare --mono "$mono" --back "$back" --out "$out/text"
whole=(--add "$out/text/added.$source" "$out/text/added.$target")
if [ "$task" = sources ]; then
    prepare --mono "$mono" --back "$back" --phrases 0 --out "$out/text-without-phrases"
    prepare --out "$out/text-without-back"
    train whole "$out/text" $steps "${whole[@]}" "$@"
    train without-made "$out/text" $steps "$@"
    for name in without-phrases without-back; do
        added=("$out/text-$name/added.$source" "$out/text-$name/added.$target")
        train $name "$out/text-$name" $steps --add "${added[@]}" "$@"
    done
    names=(whole without-made without-phrases without-back)
else
    anew=$out/text-anew
    mkdir -p "$anew"
    for side in "$source" "$target"; do cp "$out/text/train.$side" "$anew"; done
    grep -m $read -v '^⓪' "$out/text/train.$source" > "$anew/read"
    for teacher in ${TEACHERS:-"$here/$direction"}; do
        python3 "$here/../translate.py" --model "$teacher" --input "$anew/read" --output "$anew/written" 2> "$out/anew.log"
        cat "$anew/read" >> "$anew/train.$source"
        cat "$anew/written" >> "$anew/train.$target"
    done
    train anew "$anew" $((steps * 3)) "${whole[@]}" "$@"
    names=(anew)
fi
for group in "${groups[@]}"; do wait "$group" || echo "a training failed: its log says why" >&2; done
for name in "${names[@]}"; do echo "$name: $(grep "BLEU" "$out/$name.log" | tail -n 1)"; done
