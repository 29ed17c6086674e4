package filter

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"image"
	"io"

	"github.com/klauspost/compress/flate"
)

// Screenshots are PNGs with 8 bits a channel and rows in their order. They are read
// row by row, which takes half as long as package image/png, and no memory for the
// whole picture. Everything else is left to that package.

const signature = "\x89PNG\r\n\x1a\n"

// channels are the bytes of a pixel by the type of its colour: grey, RGB and RGBA.
var channels = map[byte]int{0: 1, 2: 3, 6: 4}

var errChunk = errors.New("a chunk of the PNG is damaged")

// rows are the rows of a PNG.
type rows struct {
	size         image.Point
	pixel        int // bytes
	data         io.Reader
	before, line []byte // of which the first byte is the filter
}

// openRows reads the header of a PNG. ok is false if the picture is of another kind.
func openRows(data []byte) (r *rows, ok bool) {
	const ihdr = len(signature) + 8
	if len(data) < ihdr+13 || string(data[:len(signature)]) != signature || string(data[ihdr-4:ihdr]) != "IHDR" {
		return nil, false
	}
	h := data[ihdr : ihdr+13]
	width, height := binary.BigEndian.Uint32(h), binary.BigEndian.Uint32(h[4:])
	pixel := channels[h[9]]
	if h[8] != 8 || pixel == 0 || h[10] != 0 || h[11] != 0 || h[12] != 0 || width < 1 || height < 1 || width > MaxPixels/height {
		return nil, false
	}
	r = &rows{size: image.Pt(int(width), int(height)), pixel: pixel}
	r.before, r.line = make([]byte, 1+r.size.X*pixel), make([]byte, 1+r.size.X*pixel)
	// The first two bytes are the header of zlib. Its checksum at the end is not looked
	// at: those of the chunks are.
	all, err := compressed(data[len(signature):])
	if err != nil || len(all) < 2 || all[0]&0x0f != 8 || binary.BigEndian.Uint16(all)%31 != 0 || all[1]&0x20 != 0 {
		return nil, false // image/png says what is wrong
	}
	r.data = flate.NewReader(bytes.NewReader(all[2:]))
	return r, true
}

// next reads the next row as grey pixels.
func (r *rows) next(into []uint8) error {
	r.before, r.line = r.line, r.before
	if _, err := io.ReadFull(r.data, r.line); err != nil {
		return err
	}
	line := r.line[1:]
	if err := unfilter(r.line[0], line, r.before[1:], r.pixel); err != nil {
		return err
	}
	switch r.pixel {
	case 1:
		copy(into, line)
	default:
		for x := range into {
			q := line[r.pixel*x : r.pixel*x+3 : r.pixel*x+3]
			into[x] = luma(q[0], q[1], q[2])
		}
	}
	return nil
}

// unfilter restores a row, of which each byte is a difference to what is beside or
// above it.
func unfilter(kind byte, line, above []byte, pixel int) error {
	above = above[:len(line)]
	switch kind {
	case 0:
	case 1:
		for i := pixel; i < len(line); i++ {
			line[i] += line[i-pixel]
		}
	case 2:
		for i := range line {
			line[i] += above[i]
		}
	case 3:
		for i := range pixel {
			line[i] += above[i] / 2
		}
		for i := pixel; i < len(line); i++ {
			line[i] += uint8((int(line[i-pixel]) + int(above[i])) / 2) //nolint:gosec // an average of bytes
		}
	case 4:
		for i := range pixel {
			line[i] += above[i]
		}
		for i := pixel; i < len(line); i++ {
			line[i] += paeth(line[i-pixel], above[i], above[i-pixel])
		}
	default:
		return fmt.Errorf("a row of the PNG has the filter %d", kind)
	}
	return nil
}

// paeth returns which of left, above and above left is nearest to left + above −
// above left.
func paeth(left, above, corner uint8) uint8 {
	a, b := int(above)-int(corner), int(left)-int(corner)
	c := max(a+b, -a-b)
	a, b = max(a, -a), max(b, -b)
	switch {
	case a <= b && a <= c:
		return left
	case b <= c:
		return above
	}
	return corner
}

// compressed returns the compressed data in the chunks of a PNG.
func compressed(rest []byte) (data []byte, err error) {
	for len(rest) >= 12 {
		n := binary.BigEndian.Uint32(rest)
		if uint64(n) > uint64(len(rest)-12) {
			break
		}
		chunk, sum := rest[4:8+n], rest[8+n:12+n]
		rest = rest[12+n:]
		if crc32.ChecksumIEEE(chunk) != binary.BigEndian.Uint32(sum) {
			return nil, errChunk
		}
		switch string(chunk[:4]) {
		case "IDAT":
			data = append(data, chunk[4:]...)
		case "IEND":
			return data, nil
		}
	}
	return nil, io.ErrUnexpectedEOF
}
