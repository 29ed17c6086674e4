package viewtools

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	"image/color"
	_ "image/gif" // decodes GIF
	"image/jpeg"
	_ "image/png" // decodes PNG

	"golang.org/x/image/draw"
	_ "golang.org/x/image/webp" // decodes WebP
)

// Bounds of a picture that is shown, and of one that is decoded.
const (
	MaxSide   = 1200      // pixels
	MaxBytes  = 200_000   //
	maxPixels = 100 << 20 // 400 MB of memory
)

// Picture is a picture that is small enough.
type Picture struct {
	MediaType string
	Data      []byte
	Was, Is   image.Point // its size in pixels
}

// Fit returns the picture as it is if it is small enough, or else a smaller JPEG.
// Fails if it is not a PNG, JPEG, GIF or WebP, or has too many pixels.
func Fit(b []byte) (Picture, error) {
	c, kind, err := image.DecodeConfig(bytes.NewReader(b))
	if err != nil {
		return Picture{}, fmt.Errorf("it is not a picture that can be shown: %w", err)
	}
	was := image.Pt(c.Width, c.Height)
	if c.Width <= 0 || c.Height <= 0 || c.Width > maxPixels/c.Height {
		return Picture{}, fmt.Errorf("it has %d × %d pixels, which is too many", c.Width, c.Height)
	}
	if max(c.Width, c.Height) <= MaxSide && len(b) <= MaxBytes {
		return Picture{MediaType: "image/" + kind, Data: b, Was: was, Is: was}, nil
	}
	full, _, err := image.Decode(bytes.NewReader(b))
	if err != nil {
		return Picture{}, fmt.Errorf("it is not a picture that can be shown: %w", err)
	}
	side := min(MaxSide, max(c.Width, c.Height))
	for range 6 {
		small := scaled(full, side)
		for _, quality := range []int{90, 75, 55} {
			var out bytes.Buffer
			if err = jpeg.Encode(&out, small, &jpeg.Options{Quality: quality}); err != nil {
				return Picture{}, err
			}
			if out.Len() <= MaxBytes {
				return Picture{MediaType: "image/jpeg", Data: out.Bytes(), Was: was, Is: small.Bounds().Size()}, nil
			}
		}
		side = side * 2 / 3
	}
	return Picture{}, errors.New("it cannot be made small enough")
}

// scaled returns the picture on white, with its longer side of that many pixels.
func scaled(p image.Image, side int) image.Image {
	size := p.Bounds().Size()
	longer := max(size.X, size.Y)
	to := image.NewRGBA(image.Rect(0, 0, max(1, size.X*side/longer), max(1, size.Y*side/longer)))
	draw.Draw(to, to.Bounds(), image.NewUniform(color.White), image.Point{}, draw.Src)
	draw.CatmullRom.Scale(to, to.Bounds(), p, p.Bounds(), draw.Over, nil)
	return to
}
