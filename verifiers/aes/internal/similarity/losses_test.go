package similarity

import "testing"

// What is missing to 1 has a cause: nothing written, nothing shown, an action that
// fails, elements without a partner, and what differs in pairs. Together with the
// score they are 1.
func TestLossesByCause(t *testing.T) {
	t.Parallel()
	box := [4]float64{0, 0, 99, 99}
	one := el{box: box, text: "one", attributes: by("text", "color"), style: map[string]string{"color": "rgb(0, 0, 0)"}}
	two := el{box: [4]float64{500, 500, 99, 99}, text: "two", attributes: by("text", "color"), style: one.style}
	after := one
	after.text, after.html = "after", "after"
	target := page(t, []el{one, two}, []el{after, two})
	grey, fails := one, page(t, []el{one, two}, nil)
	grey.style = map[string]string{"color": "rgb(128, 128, 128)"}
	fails.States[1].Failed = "nothing to press"
	broken := page(t, nil, nil)
	broken.States[0].Failed, broken.States[1].Failed = "it does not answer", "it does not answer"
	far := two
	far.box, far.text = [4]float64{5000, 5000, 99, 99}, "other"
	for _, tt := range []struct {
		name      string
		result    *Page
		unwritten bool
		only      func(Losses) float64 // the one cause; nil: several
	}{
		{"the page itself", target, false, func(Losses) float64 { return 0 }},
		{"nothing written", page(t, nil, nil), true, func(l Losses) float64 { return l.Par }},
		{"nothing shown", page(t, nil, nil), false, func(l Losses) float64 { return l.Ren }},
		{"an action that fails", fails, false, func(l Losses) float64 { return l.Act }},
		{"no partner", page(t, []el{one}, []el{after}), false, func(l Losses) float64 { return l.Mat }},
		{"other colours", page(t, []el{grey, two}, []el{after, two}), false, func(l Losses) float64 { return l.Attr }},
		{"a page that fails", broken, false, nil},
		{"priced out", page(t, []el{one, far}, []el{after, far}), false, nil},
	} {
		r := compare(t, target, tt.result, tt.unwritten)
		for what, l := range map[string]Losses{"aes": r.Lost, "strict": r.LostStrict} {
			score := map[string]float64{"aes": r.AES, "strict": r.Strict}[what]
			near(t, tt.name+": "+what+" and what it lost", score+l.Par+l.Ren+l.Act+l.Mat+l.Attr, 1)
			if tt.only != nil {
				near(t, tt.name+": the cause, "+what, tt.only(l), 1-score)
			}
		}
		if tt.name != "the page itself" && tt.name != "priced out" && r.AES > 0.99 {
			t.Errorf("%s: %g", tt.name, r.AES)
		}
	}
	r := compare(t, target, broken, false)
	if r.Lost.Ren <= 0 || r.Lost.Act <= 0 {
		t.Errorf("a page that fails loses %+v", r.Lost)
	}
	if r = compare(t, target, page(t, []el{one, far}, []el{after, far}), false); r.AES != 1 || r.LostStrict.Mat <= 0 {
		t.Errorf("priced out: %g, %+v", r.AES, r.LostStrict)
	}
}
