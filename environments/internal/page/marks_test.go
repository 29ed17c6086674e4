package page

import (
	"bytes"
	"image"
	"image/png"
	"testing"
	"testing/fstest"
)

// The marks are the screenshot with a numbered box around what can be acted on, also
// at the edges.
func TestMarks(t *testing.T) {
	t.Parallel()
	set := settings(fstest.MapFS{"index.html": {Data: []byte(`<!doctype html><body style="margin:0;background:#fff">
<p style="position:absolute;left:300px;top:300px">No mark</p><button style="position:absolute;left:100px;top:50px;width:200px;height:80px;border:0;background:#fff"></button>
<a href="#" style="position:absolute;left:-20px;top:560px;width:60px;height:60px"></a>`)}})
	b := start(t, set, Origin+"/index.html")
	o, err := b.Observe(within(t), []string{KindMarks, KindElements})
	must(t, err)
	if len(o.Screenshot) != 0 || len(o.Marks) == 0 {
		t.Fatalf("a screenshot of %d bytes, and marks of %d", len(o.Screenshot), len(o.Marks))
	}
	plain, err := b.Observe(within(t), []string{KindScreenshot})
	must(t, err)
	with, err := png.Decode(bytes.NewReader(o.Marks))
	must(t, err)
	without, err := png.Decode(bytes.NewReader(plain.Screenshot))
	must(t, err)
	if with.Bounds() != without.Bounds() || with.Bounds().Dx() != 800 {
		t.Fatalf("%v and %v", with.Bounds(), without.Bounds())
	}
	marks := 0
	for _, e := range part[map[string]Element](t, o.Parts, KindElements) {
		if e.Mark {
			marks++
		}
	}
	if marks != 1 { // less than half of the link is in the viewport
		t.Errorf("%d marks, want 1", marks)
	}
	for _, tt := range []struct {
		what    string
		x, y    int
		differs bool
	}{
		{"the left edge of the button", 100, 100, true},
		{"its right edge", 299, 100, true},
		{"its lower edge", 200, 129, true},
		{"its middle", 200, 90, false},
		{"outside of it", 310, 90, false},
		{"its label", 102, 51, true},
		{"the text", 325, 320, false},
		{"the link", 10, 560, false},
	} {
		r1, g1, b1, _ := with.At(tt.x, tt.y).RGBA()
		r2, g2, b2, _ := without.At(tt.x, tt.y).RGBA()
		if (r1 != r2 || g1 != g2 || b1 != b2) != tt.differs {
			t.Errorf("%s at %d, %d: %v with marks, %v without", tt.what, tt.x, tt.y, with.At(tt.x, tt.y), without.At(tt.x, tt.y))
		}
	}
}

// Boxes that are nowhere, huge or larger than the picture are drawn as far as they are in it.
func TestMarksAnywhere(t *testing.T) {
	t.Parallel()
	for _, box := range [][4]float64{{-1e300, -5, 1e300, 2}, {1e18, 1e18, 1, 1}, {3, 3, 1, 1}, {-9, -9, 900, 900}} {
		if _, err := marked(onePixel, map[string]Element{"7": {Box: &box, Mark: true}, "123456": {Box: &box, Mark: true}}); err != nil {
			t.Errorf("%v: %v", box, err)
		}
	}
	if _, err := marked([]byte("x"), nil); err == nil {
		t.Error("what is not a picture is marked")
	}
}

// onePixel is the smallest PNG.
var onePixel = func() []byte {
	var b bytes.Buffer
	if err := png.Encode(&b, image.NewGray(image.Rect(0, 0, 1, 1))); err != nil {
		panic(err)
	}
	return b.Bytes()
}()
