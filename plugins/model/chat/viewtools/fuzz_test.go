package viewtools

import (
	"bytes"
	"image"
	"testing"
)

// A picture that an agent made is refused, or it is one within the limits.
func FuzzFit(f *testing.F) {
	f.Add([]byte("GIF89a\x01\x00\x01\x00\x00\x00\x00,\x00\x00\x00\x00\x01\x00\x01\x00\x00\x02\x02\x04\x01\x00;"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if c, _, err := image.DecodeConfig(bytes.NewReader(b)); err == nil && int64(c.Width)*int64(c.Height) > 4<<20 {
			return // it takes too long for many executions
		}
		p, err := Fit(b)
		if err != nil {
			return
		}
		c, _, err := image.DecodeConfig(bytes.NewReader(p.Data))
		if err != nil || len(p.Data) > MaxBytes || max(c.Width, c.Height) > MaxSide {
			t.Errorf("%d bytes, %d × %d: %v", len(p.Data), c.Width, c.Height, err)
		}
	})
}
