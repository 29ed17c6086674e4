package room

import (
	"bytes"
	"image"
	"image/color"
	"image/png"
	"slices"
	"sync"
)

// Tile is how many pixels a cell has in a picture that is not scaled.
const Tile = 16

// flat are the colours of the kinds of cells.
var flat = color.Palette{
	kindWall:           color.RGBA{0, 0, 0, 255},
	kindFloor:          color.RGBA{243, 248, 238, 255},
	kindTarget:         color.RGBA{254, 126, 125, 255},
	kindBoxOnTarget:    color.RGBA{254, 95, 56, 255},
	kindBox:            color.RGBA{142, 121, 56, 255},
	kindPlayer:         color.RGBA{160, 212, 56, 255},
	kindPlayerOnTarget: color.RGBA{219, 212, 56, 255},
}

// The further colours of tiles, after the flat ones.
const (
	brick = kinds + iota
	mortar
	edge
	skin
	eye
)

// full has the colours of pictures. With more than 16 of them a pixel is a byte,
// which the encoder need not pack: this takes a third of the time.
var full = append(append(flat[:kinds:kinds],
	color.RGBA{120, 72, 60, 255}, // brick
	color.RGBA{70, 48, 44, 255},  // mortar
	color.RGBA{84, 62, 24, 255},  // edge
	color.RGBA{60, 110, 30, 255}, // skin
	color.RGBA{20, 24, 20, 255},  // eye
), slices.Repeat(color.Palette{color.RGBA{0, 0, 0, 255}}, 17)...)

// tiles are the pictures of the kinds, by rows.
var tiles = sync.OnceValue(func() (all [kinds][Tile * Tile]byte) {
	for k := range all {
		for y := range Tile {
			for x := range Tile {
				all[k][y*Tile+x] = pixel(k, y, x)
			}
		}
	}
	return all
})

// pixel returns the colour of a pixel of a tile.
func pixel(kind, y, x int) byte {
	// The distance from the middle, in half pixels, squared.
	dy, dx := 2*y-Tile+1, 2*x-Tile+1
	round := dy*dy + dx*dx
	rim := y == 0 || x == 0 || y == Tile-1 || x == Tile-1
	switch kind {
	case kindWall:
		if y%5 == 4 || (x+y/5*4)%8 == 0 {
			return mortar
		}
		return brick
	case kindTarget:
		if round < 40 || round > 90 && round < 140 {
			return kindTarget
		}
	case kindBox, kindBoxOnTarget:
		switch {
		case rim:
			return kindFloor
		case y <= 2 || x <= 2 || y >= Tile-3 || x >= Tile-3 || x == y || x == Tile-1-y:
			return edge
		}
		return byte(kind)
	case kindPlayer, kindPlayerOnTarget:
		switch {
		case y == 5 && (x == 5 || x == 10) || y == 6 && (x == 5 || x == 10):
			return eye
		case y == 10 && x >= 5 && x <= 10:
			return eye
		case round < 150:
			return byte(kind)
		case round < 200:
			return skin
		case kind == kindPlayerOnTarget && !rim:
			return kindTarget
		}
	}
	return kindFloor
}

// buffers are reused by the encoder.
var buffers pool

type pool struct{ sync.Pool }

// Get implements png.EncoderBufferPool.
func (p *pool) Get() *png.EncoderBuffer {
	b, _ := p.Pool.Get().(*png.EncoderBuffer)
	return b
}

// Put implements png.EncoderBufferPool.
func (p *pool) Put(b *png.EncoderBuffer) { p.Pool.Put(b) }

// Picture returns a PNG in which a cell has size × size pixels, a multiple of Tile.
// The same state gives the same bytes.
func (r *Room) Picture(size int) []byte {
	scale, all := size/Tile, tiles()
	im := image.NewPaletted(image.Rect(0, 0, r.Cols*size, r.Rows*size), full)
	for at := range r.Wall {
		tile := &all[r.kind(at)]
		top := at/r.Cols*size*im.Stride + at%r.Cols*size
		for y := range Tile {
			row := im.Pix[top+y*scale*im.Stride:]
			if scale == 1 {
				copy(row[:Tile], tile[y*Tile:])
				continue
			}
			for x := range size {
				row[x] = tile[y*Tile+x/scale]
			}
			for more := 1; more < scale; more++ {
				copy(row[more*im.Stride:more*im.Stride+size], row[:size])
			}
		}
	}
	return encode(im)
}

// Tiny returns a PNG in which a cell is one pixel.
func (r *Room) Tiny() []byte {
	im := image.NewPaletted(image.Rect(0, 0, r.Cols, r.Rows), flat)
	for at := range r.Wall {
		im.Pix[at] = byte(r.kind(at))
	}
	return encode(im)
}

func encode(im image.Image) []byte {
	var b bytes.Buffer
	e := png.Encoder{CompressionLevel: png.BestSpeed, BufferPool: &buffers}
	if err := e.Encode(&b, im); err != nil {
		panic(err) // to memory
	}
	return b.Bytes()
}
