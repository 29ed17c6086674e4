package main

import (
	"bytes"
	"errors"
	"image"
	"image/color"
	"image/jpeg"
	"math"
	"math/rand/v2"
	"testing"
)

func coloured(w, h int, c color.Color) *image.RGBA {
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

// plainly is the area average by its definition.
func plainly(p image.Image) *grey {
	b := p.Bounds()
	w, h := b.Dx(), b.Dy()
	out := &grey{}
	for y := range greyHeight {
		for x := range greyWidth {
			sum := 0
			for sy := y * h / greyHeight; sy < h && sy*greyHeight < (y+1)*h; sy++ {
				for sx := x * w / greyWidth; sx < w && sx*greyWidth < (x+1)*w; sx++ {
					r, g, bl, _ := p.At(b.Min.X+sx, b.Min.Y+sy).RGBA()
					l := (19595*(r>>8) + 38470*(g>>8) + 7471*(bl>>8) + 1<<15) >> 16
					sum += int(l) * int(overlap(sx, w, x, greyWidth)*overlap(sy, h, y, greyHeight))
				}
			}
			out[y*greyWidth+x] = uint8((2*sum + w*h) / (2 * w * h))
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
		got, want := reduce(p), plainly(p)
		for i := range got {
			if got[i] != want[i] {
				t.Fatalf("%v: pixel %d is %d, want %d", size, i, got[i], want[i])
			}
		}
	}
}

func TestEveryKindOfPictureHasTheSameCopy(t *testing.T) {
	t.Parallel()
	of := coloured(640, 400, color.RGBA{200, 100, 50, 255})
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
		if s := reduce(p); s[0] != luma(200, 100, 50) || s[len(s)-1] != s[0] {
			t.Errorf("%s: %d and %d, want %d", name, s[0], s[len(s)-1], luma(200, 100, 50))
		}
	}
	var b bytes.Buffer
	if err := jpeg.Encode(&b, of, nil); err != nil {
		t.Fatal(err)
	}
	if s, err := readGrey(b.Bytes(), "image/jpeg"); err != nil || math.Abs(float64(s[0])-float64(luma(200, 100, 50))) > 2 {
		t.Errorf("JPEG: %v", err)
	}
}

func TestDifferences(t *testing.T) {
	t.Parallel()
	black, white := reduce(coloured(1280, 720, color.Black)), reduce(coloured(800, 800, color.White))
	if rmse, changed := difference(black, white); rmse != 1 || changed != 1 {
		t.Errorf("black and white: %g, %g", rmse, changed)
	}
	if rmse, changed := difference(black, black); rmse != 0 || changed != 0 {
		t.Errorf("the same: %g, %g", rmse, changed)
	}
	one := *black
	for i := range 640 { // 1 % of the pixels, by one step
		one[i] = 1
	}
	if rmse, changed := difference(black, &one); changed != 0.01 || math.Abs(rmse-0.1/255) > 1e-9 {
		t.Errorf("a hundredth by a step: %g, %g", rmse, changed)
	}
}

func TestPicturesThatAreNotRead(t *testing.T) {
	t.Parallel()
	good := encoded(coloured(20, 20, color.White))
	huge := bytes.Clone(good)
	copy(huge[16:], []byte{0x7f, 0xff, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff}) // its size; the checksum is wrong, too
	for name, tt := range map[string]struct {
		data []byte
		kind string
	}{
		"nothing": {nil, "image/png"}, "text": {[]byte("<html>"), "image/png"}, "cut": {good[:len(good)-20], "image/png"},
		"too large": {huge, "image/png"}, "too large in truth": {bomb(), "image/png"}, "another kind": {good, "image/jpeg"}, "an unknown kind": {good, "image/gif"},
	} {
		if _, err := readGrey(tt.data, tt.kind); !errors.Is(err, errPicture) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// bomb is a small file of a large picture.
func bomb() []byte {
	return encoded(image.NewGray(image.Rect(0, 0, 8192, 4097)))
}
