// Package filter tells which of two consecutive pictures of a surface differ
// enough to be looked at. It compares small grey copies of them.
//
// It must not ask a model, and must not read files.
package filter

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"math"
	"math/bits"
	"slices"

	"golang.org/x/image/webp"
)

// The size of the grey copies, whatever the shape of a picture.
const (
	Width  = 320
	Height = 200
)

// MaxPixels bounds a picture: a little more than 7680 × 4320.
const MaxPixels = 1 << 25

// ErrPicture means that a picture cannot be read.
var ErrPicture = errors.New("the picture cannot be read")

// Small is a grey copy of a picture, row by row.
type Small [Width * Height]uint8

// Read decodes a PNG, JPEG or WebP picture and makes its grey copy. The bytes may
// be hostile: a picture of more than MaxPixels is not decoded. Fails with
// ErrPicture.
func Read(data []byte, mediaType string) (*Small, error) {
	if r, ok := openRows(data); ok && mediaType == "image/png" {
		s, err := reduce(r.size, r.next)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrPicture, err)
		}
		return s, nil
	}
	kind, known := kinds[mediaType]
	if !known {
		return nil, fmt.Errorf("%w: its type is %q", ErrPicture, mediaType)
	}
	c, err := kind.size(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPicture, err)
	}
	if c.Width < 1 || c.Height < 1 || c.Width > MaxPixels/c.Height {
		return nil, fmt.Errorf("%w: it has %d × %d pixels, at most %d are allowed", ErrPicture, c.Width, c.Height, MaxPixels)
	}
	p, err := kind.decode(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPicture, err)
	}
	return Reduce(p), nil
}

var kinds = map[string]struct {
	size   func(*bytes.Reader) (image.Config, error)
	decode func(*bytes.Reader) (image.Image, error)
}{
	"image/png": {
		func(r *bytes.Reader) (image.Config, error) { return png.DecodeConfig(r) },
		func(r *bytes.Reader) (image.Image, error) { return png.Decode(r) },
	},
	"image/jpeg": {
		func(r *bytes.Reader) (image.Config, error) { return jpeg.DecodeConfig(r) },
		func(r *bytes.Reader) (image.Image, error) { return jpeg.Decode(r) },
	},
	"image/webp": {
		func(r *bytes.Reader) (image.Config, error) { return webp.DecodeConfig(r) },
		func(r *bytes.Reader) (image.Image, error) { return webp.Decode(r) },
	},
}

// Reduce makes the grey copy of a picture: each pixel is the average of the area
// that it covers, rounded.
func Reduce(p image.Image) *Small {
	b := p.Bounds()
	y := b.Min.Y - 1
	s, _ := reduce(b.Size(), func(into []uint8) error {
		y++
		greyRow(into, p, y)
		return nil
	})
	return s
}

// reduce makes the grey copy of a picture of that size. next gives its rows, one
// after the other.
func reduce(size image.Point, next func(into []uint8) error) (*Small, error) {
	w, h := size.X, size.Y
	out := &Small{}
	if w < 1 || h < 1 {
		return out, nil
	}
	grey := make([]uint8, w)
	var row [Width]uint64 // of the source, each weighted with the parts that it covers
	var sum [Width]uint64 // of the rows that a row of the copy covers
	columns := spans(w, Width)
	area := uint64(w) * uint64(h)
	for y, lines := range spans(h, Height) {
		clear(sum[:])
		for s := lines.first; s <= lines.last; s++ {
			weight := lines.weight(s, Height)
			if s == lines.first && lines.shared {
				weight = lines.head // row is still that of s, of which the rest belongs here
			} else {
				if err := next(grey); err != nil {
					return nil, err
				}
				across(&row, grey, columns)
			}
			for x, v := range row {
				sum[x] += v * weight
			}
		}
		line := out[y*Width : (y+1)*Width]
		for x, v := range sum {
			line[x] = uint8((v + area/2) / area) //nolint:gosec // an average of bytes
		}
	}
	return out, nil
}

// span is what a pixel of the copy covers of the source, on one axis. Lengths are in
// units of which a pixel of the source has as many as the copy has pixels.
type span struct {
	first, last int    // pixels of the source
	head, tail  uint64 // how much of these two belongs to it; they are the same if first is last
	shared      bool   // the first one belongs to the pixel before, too
}

// weight returns how much of pixel s of the source belongs to the span.
func (p *span) weight(s, m int) uint64 {
	switch s {
	case p.first:
		return p.head
	case p.last:
		return p.tail
	}
	return uint64(m) //nolint:gosec // positive
}

// spans divides n pixels among m.
func spans(n, m int) []span {
	all := make([]span, m)
	for i := range all {
		from, to := i*n, (i+1)*n
		s := span{first: from / m, last: (to - 1) / m, shared: from%m != 0}
		s.head = uint64(min(to, (s.first+1)*m) - from) //nolint:gosec // positive
		s.tail = uint64(to - max(from, s.last*m))      //nolint:gosec // positive
		all[i] = s
	}
	return all
}

// across adds up a row of the source for each column of the copy.
func across(row *[Width]uint64, grey []uint8, columns []span) {
	for x := range columns {
		c := &columns[x]
		sum := uint64(grey[c.first]) * c.head
		if c.last > c.first {
			between := 0
			for _, v := range grey[c.first+1 : c.last] {
				between += int(v)
			}
			sum += uint64(between)*Width + uint64(grey[c.last])*c.tail //nolint:gosec // positive
		}
		row[x] = sum
	}
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

// Difference says how two pictures differ.
type Difference struct {
	RMSE    float64 // root of the mean square of the differences, 0 to 1
	Changed float64 // share of pixels that differ at all, 0 to 1
}

// Compare returns how two grey copies differ.
func Compare(a, b *Small) Difference {
	var squares, changed int
	for i, v := range a {
		d := int(v) - int(b[i])
		squares += d * d
		if d != 0 {
			changed++
		}
	}
	return Difference{RMSE: math.Sqrt(float64(squares)/float64(len(a))) / 255, Changed: float64(changed) / float64(len(a))}
}

// Hash is a perceptual hash of a picture.
type Hash uint64

// Distance returns how many of the 64 bits of two hashes differ.
func (h Hash) Distance(o Hash) int { return bits.OnesCount64(uint64(h ^ o)) }

const (
	hashed = 32 // pixels a side, of which the hash is made
	kept   = 8  // frequencies a side that it has
)

// Hash returns the perceptual hash: of a copy of 32 × 32 pixels, which of the 64
// lowest frequencies of its cosine transform are stronger than the median.
func (s *Small) Hash() Hash {
	tiny := s.tiny()
	var half [hashed][kept]float64
	for y := range hashed {
		for k := range kept {
			for x := range hashed {
				half[y][k] += tiny[y][x] * cosine(k, x)
			}
		}
	}
	var f [kept * kept]float64
	for k := range kept {
		for l := range kept {
			for y := range hashed {
				f[k*kept+l] += half[y][l] * cosine(k, y)
			}
		}
	}
	for i := range f { // what is 0 without the errors of the sums must not count as more than the median
		f[i] = math.Round(f[i]/(Width*Height)*1000) / 1000
	}
	sorted := slices.Sorted(slices.Values(f[:]))
	median := (sorted[len(f)/2-1] + sorted[len(f)/2]) / 2
	var h Hash
	for i, v := range f {
		if v > median {
			h |= 1 << i
		}
	}
	return h
}

// tiny returns the copy of which the hash is made. Its pixels are sums: a white one is
// 255 × Width × Height.
func (s *Small) tiny() (out [hashed][hashed]float64) {
	rows, columns := spans(Height, hashed), spans(Width, hashed)
	for y := range rows {
		for x := range columns {
			for sy := rows[y].first; sy <= rows[y].last; sy++ {
				for sx := columns[x].first; sx <= columns[x].last; sx++ {
					out[y][x] += float64(s[sy*Width+sx]) * float64(rows[y].weight(sy, hashed)) * float64(columns[x].weight(sx, hashed))
				}
			}
		}
	}
	return out
}

func cosine(k, x int) float64 { return math.Cos(math.Pi * float64(k) * float64(2*x+1) / (2 * hashed)) }
