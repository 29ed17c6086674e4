package page

import (
	"bytes"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"math"
	"slices"
	"strconv"

	"golang.org/x/image/font"
	"golang.org/x/image/font/basicfont"
	"golang.org/x/image/math/fixed"
)

// hues are the colours of boxes, so that neighbours can be told apart.
var hues = []color.RGBA{
	{0xd0, 0x10, 0x20, 0xff}, {0x10, 0x50, 0xd0, 0xff}, {0x00, 0x80, 0x30, 0xff}, {0x90, 0x20, 0xb0, 0xff}, {0xb0, 0x50, 0x00, 0xff}, {0x00, 0x70, 0x90, 0xff},
}

// edge is how wide the line of a box is, in pixels.
const edge = 2

// marked returns a screenshot with a box around each element of the set of marks, and
// its bid.
func marked(screenshot []byte, elements map[string]Element) ([]byte, error) {
	seen, err := png.Decode(bytes.NewReader(screenshot))
	if err != nil {
		return nil, err
	}
	to := image.NewRGBA(seen.Bounds())
	draw.Draw(to, to.Bounds(), seen, seen.Bounds().Min, draw.Src)
	var bids []string
	for bid, e := range elements {
		if e.Mark {
			bids = append(bids, bid)
		}
	}
	number := func(bid string) int { n, _ := strconv.Atoi(bid); return n } // bids are numbers
	slices.SortFunc(bids, func(a, b string) int { return number(a) - number(b) })
	for i, bid := range bids {
		b := elements[bid].Box
		pixels := func(v float64) int { return int(math.Round(min(max(v, -1e6), 1e6))) }
		r := image.Rect(pixels(b[0]), pixels(b[1]), pixels(b[0]+b[2]), pixels(b[1]+b[3]))
		box(to, r, bid, image.NewUniform(hues[i%len(hues)]))
	}
	var out bytes.Buffer
	err = (&png.Encoder{CompressionLevel: png.BestSpeed}).Encode(&out, to)
	return out.Bytes(), err
}

// box draws a box, with its bid in a label in its upper left corner.
func box(to draw.Image, r image.Rectangle, bid string, hue image.Image) {
	for _, side := range []image.Rectangle{
		{r.Min, image.Pt(r.Max.X, r.Min.Y+edge)},
		{image.Pt(r.Min.X, r.Max.Y-edge), r.Max},
		{r.Min, image.Pt(r.Min.X+edge, r.Max.Y)},
		{image.Pt(r.Max.X-edge, r.Min.Y), r.Max},
	} {
		draw.Draw(to, side.Intersect(to.Bounds()), hue, image.Point{}, draw.Src)
	}
	face := basicfont.Face7x13
	at := r.Min
	at.X = min(max(at.X, 0), to.Bounds().Max.X-face.Advance*len(bid)-2)
	at.Y = min(max(at.Y, 0), to.Bounds().Max.Y-face.Height)
	label := image.Rectangle{at, at.Add(image.Pt(face.Advance*len(bid)+2, face.Height))}
	draw.Draw(to, label.Intersect(to.Bounds()), hue, image.Point{}, draw.Src)
	d := font.Drawer{Dst: to, Src: image.White, Face: face, Dot: fixed.P(at.X+1, at.Y+face.Ascent)}
	d.DrawString(bid)
}
