package filter

import (
	"bytes"
	"errors"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"math"
	"math/rand/v2"
	"os"
	"testing"
)

func filled(w, h int, c color.Color) *image.RGBA {
	p := image.NewRGBA(image.Rect(0, 0, w, h))
	for y := range h {
		for x := range w {
			p.Set(x, y, c)
		}
	}
	return p
}

// noise is a picture of random pixels.
func noise(w, h int, seed uint64) *image.RGBA {
	r := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a test
	p := image.NewRGBA(image.Rect(0, 0, w, h))
	for i := range p.Pix {
		p.Pix[i] = uint8(r.UintN(256))
	}
	return p
}

func encoded(t testing.TB, p image.Image) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := png.Encode(&b, p); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// plainly is the area average by its definition.
func plainly(p image.Image) *Small {
	b := p.Bounds()
	w, h := b.Dx(), b.Dy()
	overlap := func(i, n, j, m int) int { // of pixel i of n and pixel j of m, on a side of length n × m
		return max(0, min((i+1)*m, (j+1)*n)-max(i*m, j*n))
	}
	out := &Small{}
	for y := range Height {
		for x := range Width {
			sum := 0
			for sy := y * h / Height; sy < h && sy <= (y+1)*h/Height; sy++ {
				for sx := x * w / Width; sx < w && sx <= (x+1)*w/Width; sx++ {
					r, g, bl, _ := p.At(b.Min.X+sx, b.Min.Y+sy).RGBA()
					l := (19595*(r>>8) + 38470*(g>>8) + 7471*(bl>>8) + 1<<15) >> 16
					sum += int(l) * overlap(sx, w, x, Width) * overlap(sy, h, y, Height)
				}
			}
			out[y*Width+x] = uint8((2*sum + w*h) / (2 * w * h))
		}
	}
	return out
}

func TestACopyIsTheAverageOfAreas(t *testing.T) {
	t.Parallel()
	for _, size := range []image.Point{{320, 200}, {640, 400}, {1280, 720}, {333, 77}, {100, 500}, {1, 1}} {
		p := noise(size.X, size.Y, 7)
		for i := 3; i < len(p.Pix); i += 4 {
			p.Pix[i] = 255
		}
		got, want := Reduce(p), plainly(p)
		for i := range got {
			if got[i] != want[i] {
				t.Fatalf("%v: pixel %d is %d, want %d", size, i, got[i], want[i])
			}
		}
	}
}

func TestAnAverageIsRounded(t *testing.T) {
	t.Parallel()
	p := image.NewGray(image.Rect(0, 0, 2*Width, Height))
	p.Pix[0], p.Pix[1] = 10, 11 // 10.5
	p.Pix[4], p.Pix[5] = 0, 0
	if s := Reduce(p); s[0] != 11 || s[2] != 0 {
		t.Errorf("%d, %d", s[0], s[2])
	}
}

func TestEveryKindOfPictureHasTheSameCopy(t *testing.T) {
	t.Parallel()
	of := filled(640, 400, color.RGBA{200, 100, 50, 255})
	paletted := image.NewPaletted(of.Bounds(), color.Palette{color.RGBA{200, 100, 50, 255}})
	deep := image.NewRGBA64(of.Bounds())
	for y := range 400 {
		for x := range 640 {
			deep.Set(x, y, of.At(x, y))
		}
	}
	for name, p := range map[string]image.Image{
		"RGBA": of, "paletted": paletted, "16 bits": deep, "a part": of.SubImage(image.Rect(40, 30, 300, 200)),
	} {
		if s := Reduce(p); s[0] != luma(200, 100, 50) || s[len(s)-1] != s[0] {
			t.Errorf("%s: %d and %d, want %d", name, s[0], s[len(s)-1], luma(200, 100, 50))
		}
	}
	var b bytes.Buffer
	if err := jpeg.Encode(&b, of, nil); err != nil {
		t.Fatal(err)
	}
	if s, err := Read(b.Bytes(), "image/jpeg"); err != nil || math.Abs(float64(s[0])-float64(luma(200, 100, 50))) > 2 {
		t.Errorf("JPEG: %v", err)
	}
}

func TestDifferences(t *testing.T) {
	t.Parallel()
	black, white := Reduce(filled(1280, 720, color.Black)), Reduce(filled(800, 800, color.White))
	if d := Compare(black, white); d.RMSE != 1 || d.Changed != 1 {
		t.Errorf("black and white: %+v", d)
	}
	if d := Compare(black, black); d.RMSE != 0 || d.Changed != 0 {
		t.Errorf("the same: %+v", d)
	}
	one := *black
	for i := range 640 { // 1 % of the pixels, by one step
		one[i] = 1
	}
	if d := Compare(black, &one); d.Changed != 0.01 || math.Abs(d.RMSE-0.1/255) > 1e-9 {
		t.Errorf("a hundredth by a step: %+v", d)
	}
}

func TestHashes(t *testing.T) {
	t.Parallel()
	page := filled(1280, 720, color.White)
	for y := 100; y < 300; y++ {
		for x := 200; x < 900; x++ {
			page.Set(x, y, color.Black)
		}
	}
	before := Reduce(page).Hash()
	if d := before.Distance(Reduce(page).Hash()); d != 0 {
		t.Errorf("the same picture: %d", d)
	}
	for y := 400; y < 700; y++ {
		for x := 600; x < 1200; x++ {
			page.Set(x, y, color.Black)
		}
	}
	if d := before.Distance(Reduce(page).Hash()); d < 5 {
		t.Errorf("another picture: %d", d)
	}
}

func TestHostilePictures(t *testing.T) {
	t.Parallel()
	good := encoded(t, filled(20, 20, color.White))
	huge := bytes.Clone(good)
	copy(huge[16:], []byte{0x7f, 0xff, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff}) // its size; the checksum is wrong, too
	for name, tt := range map[string]struct {
		data []byte
		kind string
	}{
		"nothing": {nil, "image/png"}, "text": {[]byte("<html>"), "image/png"}, "cut": {good[:len(good)-20], "image/png"},
		"too large": {huge, "image/png"}, "too large in truth": {bomb(t), "image/png"}, "another kind": {good, "image/jpeg"}, "an unknown kind": {good, "image/gif"},
	} {
		if _, err := Read(tt.data, tt.kind); !errors.Is(err, ErrPicture) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// bomb is a small file of a large picture.
func bomb(t testing.TB) []byte {
	t.Helper()
	return encoded(t, image.NewGray(image.Rect(0, 0, 8192, 4097)))
}

// Rows that are read one by one give the same copy as package image/png.
func TestRowsOfAPNG(t *testing.T) {
	t.Parallel()
	for _, size := range []image.Point{{1280, 720}, {333, 77}, {1, 1}, {2, 1000}} {
		opaque, glassy, grey := noise(size.X, size.Y, 3), noise(size.X, size.Y, 4), image.NewGray(image.Rectangle{Max: size})
		smooth := image.NewNRGBA(image.Rectangle{Max: size}) // of which the encoder filters the rows
		for y := range size.Y {
			for x := range size.X {
				opaque.Pix[opaque.PixOffset(x, y)+3] = 255
				grey.SetGray(x, y, color.Gray{uint8(x * y)})
				smooth.SetNRGBA(x, y, color.NRGBA{uint8(x), uint8(y), uint8(x + y), uint8(255 - x%2)})
			}
		}
		for name, p := range map[string]image.Image{"RGB": opaque, "RGBA": glassy, "grey": grey, "smooth": smooth, "a gradient": filled(size.X, size.Y, color.White)} {
			data := encoded(t, p)
			if _, ok := openRows(data); !ok {
				t.Errorf("%s: it is not read row by row", name)
			}
			sameAsThePackage(t, data)
		}
	}
	shot, err := os.ReadFile("testdata/screenshot.png") // by Chromium
	if err != nil {
		t.Fatal(err)
	}
	sameAsThePackage(t, shot)
}

// sameAsThePackage compares the copy of a PNG with that of what image/png decodes, if
// both can read it.
func sameAsThePackage(t *testing.T, data []byte) {
	t.Helper()
	want, err := png.Decode(bytes.NewReader(data))
	got, failed := Read(data, "image/png")
	if err != nil || failed != nil || want.Bounds().Dx() > MaxPixels/want.Bounds().Dy() {
		return
	}
	if *got != *Reduce(want) {
		t.Errorf("the copies differ: %+v", Compare(got, Reduce(want)))
	}
}

func FuzzRead(f *testing.F) {
	f.Add(encoded(f, filled(3, 3, color.White)))
	f.Add(encoded(f, noise(9, 5, 1)))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := Read(data, "image/png")
		if (s == nil) == (err == nil) {
			t.Errorf("%v, %v", s == nil, err)
		}
		sameAsThePackage(t, data)
	})
}

// BenchmarkPair reads a further screenshot and compares it with the one before.
func BenchmarkPair(b *testing.B) {
	page := filled(1280, 720, color.White)
	for i := range 200 {
		for x := range 600 {
			page.Set(20+x*(i%7)/7, 10+i*3, color.RGBA{uint8(x), uint8(i), 80, 255})
		}
	}
	data := encoded(b, page)
	before, err := Read(data, "image/png")
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		now, err := Read(data, "image/png")
		if err != nil {
			b.Fatal(err)
		}
		_ = Compare(before, now)
		before = now
	}
}
