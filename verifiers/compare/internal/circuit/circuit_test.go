package circuit

import (
	"fmt"
	"strings"
	"testing"
)

// cir is a circuit of parts such as `And 0 0 64 0`, with in= at the end of a gate.
func cir(parts ...string) string {
	var b strings.Builder
	b.WriteString(`<cir f="1" ts="0.000005">`)
	for _, p := range parts {
		tag, place, _ := strings.Cut(p, " ")
		place, in, has := strings.Cut(place, " in=")
		fmt.Fprintf(&b, `<%s x="%s" f="0"`, tag, place)
		if has {
			fmt.Fprintf(&b, ` in="%s"`, in)
		}
		b.WriteString("/>")
	}
	return b.String() + "</cir>"
}

// Inputs at the pins of a gate at 0 0, and an output at its end.
const (
	top, bottom = "L 0 -16 -32 -16", "L 0 16 -32 16"
	out         = "M 64 0 96 0"
)

// two is a gate with two inputs.
func two(gate string) string { return cir(top, bottom, gate+" 0 0 64 0 in=2", out) }

func table(t *testing.T, text string) Table {
	t.Helper()
	got, err := Read(text)
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return got
}

func TestTruthTables(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		text string
		want string // columns, row 0 first
	}{
		"And":          {two("And"), "0001"},
		"Nand":         {two("Nand"), "1110"},
		"Or":           {two("Or"), "0111"},
		"Nor":          {two("Nor"), "1000"},
		"Xor":          {two("Xor"), "0110"},
		"Xnor":         {two("Xnor"), "1001"},
		"not":          {cir("L 0 0 -32 0", "I 0 0 64 0", out), "10"},
		"constant 0":   {cir("L 0 -16 -32 -16", "g 0 16 0 48", "Nor 0 0 64 0", out), "10"},
		"two outputs":  {cir("L 0 0 -32 0", "I 0 0 64 0", out, "M 0 0 0 32"), "10 01"},
		"two pins":     {two("And"), "0001"},
		"without in":   {cir(top, bottom, "And 0 0 64 0", out), "0001"},
		"three pins":   {cir(top, "L 0 0 -32 0", bottom, "And 0 0 64 0 in=3", out), "00000001"},
		"three of Xor": {cir(top, "L 0 0 -32 0", bottom, "Xor 0 0 64 0 in=3", out), "01101001"},
		"four pins":    {cir("L 0 -32 -32 -32", top, bottom, "L 0 32 -32 32", "Or 0 0 64 0 in=4", out), "0111111111111111"},
		"five pins":    {cir("L 0 -32 -32 -32", top, "L 0 0 -32 0", bottom, "L 0 32 -32 32", "And 0 0 64 0 in=5", out), strings.Repeat("0", 31) + "1"},
		"to the left":  {cir(top, bottom, "And 0 0 -64 0", "M -64 0 -96 0"), "0001"},
		"down":         {cir("L -16 0 -16 -32", "L 16 0 16 -32", "And 0 0 0 64", "M 0 64 0 96"), "0001"},
		"diagonal":     {cir(top, bottom, "And 0 0 64 64", "M 64 64 96 64"), "0001"},
		"steep":        {cir("L -16 0 -16 -32", "L 16 0 16 -32", "And 0 0 63 64", "M 63 64 96 64"), "0001"},
		"wires":        {cir("L -64 -16 -96 -16", "w -64 -16 -32 -16", "rw -32 -16 0 -16", bottom, "And 0 0 64 0", "w 64 0 64 64", "M 64 64 96 64"), "0001"},
		"a wire past another": {
			cir("L -64 -16 -96 -16", "w -64 -16 0 -16", bottom, "w -32 -32 -32 32", "And 0 0 64 0", out), "0001",
		},
		"a switch as input":             {cir("s 0 -16 -32 -16", "S 0 16 -32 16", "And 0 0 64 0", out), "0001"},
		"a switch as output":            {cir(top, bottom, "And 0 0 64 0", "s 64 0 96 0"), "0001"},
		"both":                          {cir("S 0 0 -32 0", "I 0 0 64 0", "S 64 0 96 0"), "10"},
		"texts and scopes":              {cir(top, bottom, "And 0 0 64 0", out, "x 1 2 3", "o 4"), "0001"},
		"drivers that agree":            {cir("L 0 0 -32 0", "I 0 0 64 0", "I 0 0 64 0", out), "10"},
		"an input that nothing uses":    {cir("L 0 0 -32 0", "L 0 99 -32 99", "I 0 0 64 0", out), "1010"},
		"a wire that leads nowhere":     {cir("L 0 0 -32 0", "I 0 0 64 0", out, "w 900 0 900 32"), "10"},
		"a gate that nobody reads":      {cir("L 0 0 -32 0", "I 0 0 64 0", out, "I 0 0 0 64"), "10"},
		"six inputs":                    {cir("L 0 0 1 1", "L 9 1 1 1", "L 9 2 1 1", "L 9 3 1 1", "L 9 4 1 1", "L 9 5 1 1", "M 0 0 1 1"), strings.Repeat("01", 32)},
		"an element with content":       {`<cir><L x="0 0 1 1"><p>1</p></L><M x="0 0 1 1"/></cir>`, "01"},
		"a header of XML":               {`<?xml version="1.0"?>` + "\n" + cir("L 0 0 1 1", "M 0 0 1 1"), "01"},
		"the older text":                {"$ 1 0.000005 10.2 50 5 50 5e-11\nL 0 -16 -32 -16 0 0 false 5 0\nL 0 16 -32 16 0 1 false 5 0\n150 0 0 64 0 0 2 0 5\nM 64 0 96 0 0 2.5\no 4 64 0 4099 5 0.1\nx 1 1 20 20 4 24 hello\n", "0001"},
		"150 to 155":                    {dump(150), "0001"},
		"151":                           {dump(151), "1110"},
		"152":                           {dump(152), "0111"},
		"153":                           {dump(153), "1000"},
		"154":                           {dump(154), "0110"},
		"155":                           {dump(155), "1001"},
		"the older text without pins":   {"L 0 0 1 1\nI 0 0 64 0\nw 64 0 64 32 0\nM 64 32 1 1\ng 99 0 99 1\nr", ""},
		"a switch in the older text":    {"$ 1\ns 0 0 1 1 0 1 false\nI 0 0 64 0\nM 64 0 1 1\n", "10"},
		"three pins in the older text":  {"$ 1\nL 0 -16 1 1\nL 0 0 1 1\nL 0 16 1 1\n154 0 0 64 0 0 3 0\nM 64 0 1 1\n", "01101001"},
		"pins by default in older text": {"$ 1\nL 0 -16 1 1\nL 0 16 1 1\n150 0 0 64 0\nM 64 0 1 1\n", "0001"},
	} {
		got, err := Read(tt.text)
		if tt.want == "" {
			if err == nil {
				t.Errorf("%s: no error", name)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var columns []string
		for _, c := range got.columns {
			var b strings.Builder
			for r := range 1 << got.inputs {
				fmt.Fprint(&b, c>>r&1)
			}
			columns = append(columns, b.String())
		}
		if s := strings.Join(columns, " "); s != tt.want {
			t.Errorf("%s: %s, want %s", name, s, tt.want)
		}
	}
}

// dump is a gate with two inputs in the older text.
func dump(code int) string {
	return fmt.Sprintf("$ 1\nL 0 -16 1 1 0\nL 0 16 1 1 0\n%d 0 0 64 0 0 2 0\nM 64 0 1 1 0\n", code)
}

func TestCircuitsThatAreBroken(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ text, want string }{
		"a floating pin":    {cir(top, "And 0 0 64 0", out), "nothing drives"},
		"a floating output": {cir("L 0 0 1 1", "M 64 0 1 1"), "nothing drives"},
		"a wire crosses and does not join": {
			cir("L -64 0 -96 0", "w -64 0 64 0", "w 0 0 0 64", "M 0 64 1 1"), "nothing drives",
		},
		"a pin beside its place":        {cir("L 0 -15 1 1", bottom, "And 0 0 64 0", out), "nothing drives"},
		"a gate that nobody reads":      {cir("L 0 0 1 1", "M 0 0 1 1", "I 500 0 564 0"), "nothing drives"},
		"drivers that disagree":         {cir("L 0 0 1 1", "I 0 0 64 0", "g 64 0 64 32", out), "disagree"},
		"two inputs on a net":           {cir("L 0 0 1 1", "L 0 0 2 2", "M 0 0 1 1"), "disagree"},
		"a short of a gate":             {cir("L 0 0 1 1", "I 0 0 64 0", "w 0 0 64 0", out), "cycle"},
		"a cycle":                       {cir(top, "Nor 0 0 64 0", "w 64 0 64 64", "w 64 64 0 64", "w 0 64 0 16", out), "cycle"},
		"a cycle that no output needs":  {cir("L 0 0 1 1", "M 0 0 1 1", "I 500 0 564 0", "w 564 0 500 0"), "cycle"},
		"an unknown part":               {cir("L 0 0 1 1", "M 0 0 1 1", "r 5 5 6 6"), "unknown"},
		"a part in another case":        {cir("l 0 0 1 1", "M 0 0 1 1"), "unknown"},
		"an unknown part in older text": {"$ 1\nL 0 0 1 1\nM 0 0 1 1\n156 0 0 1 1\n", "unknown"},
		"a name of XML in older text":   {"$ 1\nL 0 -16 1 1\nL 0 16 1 1\nAnd 0 0 64 0\nM 64 0 1 1\n", "name of XML"},
		"a coordinate is missing":       {cir("L 0 0 1", "M 0 0 1 1"), "a pin is missing"},
		"no coordinates":                {`<cir><L/><M x="0 0 1 1"/></cir>`, "a pin is missing"},
		"a coordinate that is none":     {cir("L 0 0 1 1e999", "M 0 0 1 1"), "coordinate"},
		"a huge coordinate":             {cir("L 0 0 1 9999999999", "M 0 0 1 1"), "coordinate"},
		"one pin":                       {cir("L 0 0 1 1", "And 0 0 64 0 in=1", out), "pins"},
		"many pins":                     {cir("L 0 0 1 1", "And 0 0 64 0 in=1000000000", out), "pins"},
		"no input":                      {cir("g 0 0 1 1", "M 0 0 1 1"), "no input"},
		"no output":                     {cir("L 0 0 1 1"), "no output"},
		"nothing":                       {cir(), "no input"},
		"seven inputs":                  {cir("L 0 0 1 1", "L 9 1 1 1", "L 9 2 1 1", "L 9 3 1 1", "L 9 4 1 1", "L 9 5 1 1", "L 9 6 1 1", "M 0 0 1 1"), "7 inputs"},
		"another root":                  {`<svg></svg>`, "not a circuit"},
		"half a document":               {`<cir><L x="0 0 1 1"/>`, "not a circuit"},
		"no XML":                        {`<cir><L x=0 0 1 1></cir>`, "not a circuit"},
		"empty":                         {"", "no input"},
		"many parts":                    {cir(strings.Split(strings.Repeat("w 0 0 1 1,", 6000), ",")[:6000]...), "5000 parts"},
	} {
		if _, err := Read(tt.text); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}

func TestShares(t *testing.T) {
	t.Parallel()
	half := cir(top, bottom, "Xor 0 0 64 0", out, "w 0 -16 0 -200", "w 0 16 100 200", "I 200 0 264 0", "M 264 0 1 1",
		"w 0 -200 200 -200", "w 200 -200 200 0")
	adder := func(carry string) string {
		return cir(top, bottom, "Xor 0 0 64 0", out, "w 0 -16 200 -16", "w 0 16 200 16", carry+" 200 0 264 0", "M 264 0 1 1")
	}
	order := func(first, second string) string { // a and not b, with its inputs in two orders
		return cir(first, second, "I -64 16 0 16", "And 0 0 64 0", out)
	}
	for name, tt := range map[string]struct {
		expected, predicted string
		want                float64
	}{
		"the same":                     {two("And"), two("And"), 1},
		"another gate":                 {two("And"), two("Or"), 0},
		"half":                         {adder("And"), adder("Or"), 0.5},
		"all":                          {adder("And"), adder("And"), 1},
		"outputs in another order":     {adder("And"), cir(top, bottom, "And 0 0 64 0", out, "w 0 -16 200 -16", "w 0 16 200 16", "Xor 200 0 264 0", "M 264 0 1 1"), 1},
		"one column twice":             {adder("And"), adder("Xor"), 0.5},
		"inputs in another order":      {order("L 0 -16 1 1", "L -64 16 1 1"), order("L -64 16 1 1", "L 0 -16 1 1"), 1},
		"the older text":               {two("Nand"), dump(151), 1},
		"the same function":            {two("Nand"), cir(top, bottom, "And 0 0 64 0", "I 64 0 128 0", "M 128 0 1 1"), 1},
		"fewer inputs":                 {two("And"), cir("L 0 0 1 1", "I 0 0 64 0", out), 0},
		"another number of outputs":    {two("Xor"), adder("And"), 0},
		"not of one input, any of two": {half, half, 1},
	} {
		got, d := Compare(table(t, tt.expected), table(t, tt.predicted))
		if got != tt.want || d.Empty() != (tt.want == 1) {
			t.Errorf("%s: %g (%s), want %g", name, got, &d, tt.want)
		}
	}
}

func TestWhereACircuitIs(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		" <cir f=\"1\"></cir>": true, "<circle/>": false, "$ 1 0.000005 10.2\n": true, "150 0 0 64 0 0 2\n": true, "L 0 0 1 1": true,
		"rw -16 0 1 1 0": true, "{\"answer\": 1}": false, "42": false, "": false, "150 apples": false, "I am done": false,
	} {
		if got := Is(text); got != want {
			t.Errorf("Is(%q) = %v", text, got)
		}
	}
	if got, ok := Find("Here:\n<cir></cir> and more"); !ok || got != "<cir></cir>" {
		t.Errorf("Find = %q, %v", got, ok)
	}
	if got, ok := Find("I made it"); ok {
		t.Errorf("Find = %q", got)
	}
}
