package main

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	"image/color"
	_ "image/jpeg" // these are the kinds that are read
	_ "image/png"
	"math"

	_ "golang.org/x/image/webp"
)

// The size of the grey copies, whatever the shape of a picture.
const (
	greyWidth  = 320
	greyHeight = 200
)

// maxPixels bounds a picture: a little more than 7680 × 4320.
const maxPixels = 1 << 25

// errPicture means that a picture cannot be read.
var errPicture = errors.New("the picture cannot be read")

// grey is a small grey copy of a picture, row by row.
type grey [greyWidth * greyHeight]uint8

// readGrey decodes a PNG, JPEG or WebP picture and makes its grey copy. The bytes may
// be hostile: a picture of more than maxPixels is not decoded. Fails with errPicture.
func readGrey(data []byte, mediaType string) (*grey, error) {
	c, kind, err := image.DecodeConfig(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errPicture, err)
	}
	if mediaType != "image/"+kind {
		return nil, fmt.Errorf("%w: its type is %q, and its content %s", errPicture, mediaType, kind)
	}
	if c.Width < 1 || c.Height < 1 || c.Width > maxPixels/c.Height {
		return nil, fmt.Errorf("%w: it has %d × %d pixels, at most %d are allowed", errPicture, c.Width, c.Height, maxPixels)
	}
	p, _, err := image.Decode(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errPicture, err)
	}
	return reduce(p), nil
}

// reduce makes the grey copy of a picture: each pixel is the average of the area
// that it covers, rounded.
func reduce(p image.Image) *grey {
	b := p.Bounds()
	w, h := b.Dx(), b.Dy()
	sums := make([]uint64, greyWidth*greyHeight)
	line := make([]uint8, w)
	for y := range h {
		greyRow(line, p, b.Min.Y+y)
		var row [greyWidth]uint64
		for x, v := range line {
			for j := x * greyWidth / w; j*w < (x+1)*greyWidth; j++ {
				row[j] += uint64(v) * overlap(x, w, j, greyWidth)
			}
		}
		for i := y * greyHeight / h; i*h < (y+1)*greyHeight; i++ {
			weight := overlap(y, h, i, greyHeight)
			for x, v := range row {
				sums[i*greyWidth+x] += v * weight
			}
		}
	}
	out, area := &grey{}, uint64(w)*uint64(h) //nolint:gosec // positive
	for i, v := range sums {
		out[i] = uint8((v + area/2) / area) //nolint:gosec // an average of bytes
	}
	return out
}

// overlap returns what pixel i of n and pixel j of m have in common, on a side of the
// length n × m.
func overlap(i, n, j, m int) uint64 {
	return uint64(min((i+1)*m, (j+1)*n) - max(i*m, j*n)) //nolint:gosec // positive
}

// luma returns the brightness of a colour, with the weights of ITU-R BT.601, as
// Pillow rounds it.
func luma(r, g, b uint8) uint8 {
	return uint8((19595*uint32(r) + 38470*uint32(g) + 7471*uint32(b) + 1<<15) >> 16) //nolint:gosec // at most 255
}

// greyRow writes a row of a picture as grey pixels. Transparency does not count.
func greyRow(into []uint8, p image.Image, y int) {
	x0 := p.Bounds().Min.X
	var pix []uint8
	switch p := p.(type) {
	case *image.RGBA:
		pix = p.Pix[p.PixOffset(x0, y):]
	case *image.NRGBA:
		pix = p.Pix[p.PixOffset(x0, y):]
	case *image.Gray:
		copy(into, p.Pix[p.PixOffset(x0, y):])
		return
	default:
		for x := range into {
			if g, ok := color.GrayModel.Convert(p.At(x0+x, y)).(color.Gray); ok {
				into[x] = g.Y
			}
		}
		return
	}
	for x := range into {
		q := pix[4*x : 4*x+3 : 4*x+3]
		into[x] = luma(q[0], q[1], q[2])
	}
}

// difference returns how two grey copies differ: the root of the mean square of the
// differences, and the share of pixels that differ at all, both from 0 to 1.
func difference(a, b *grey) (rmse, changed float64) {
	var squares, different int
	for i, v := range a {
		d := int(v) - int(b[i])
		squares += d * d
		if d != 0 {
			different++
		}
	}
	return math.Sqrt(float64(squares)/float64(len(a))) / 255, float64(different) / float64(len(a))
}
