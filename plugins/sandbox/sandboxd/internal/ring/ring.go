// Package ring keeps the last bytes of a stream, so that a reader who was
// disconnected can continue where it stopped. The writer waits for a connected
// reader, so that reader loses nothing.
//
// It must not grow beyond its size.
package ring

import (
	"context"
	"io"
	"sync"
)

// Ring has one writer and one reader at a time.
type Ring struct {
	mu    sync.Mutex
	moved sync.Cond // signals a change of the fields below
	size  int64     // largest length of buf
	buf   []byte    // byte of offset o is at o % len(buf)
	start int64     // offset of the oldest byte that is kept
	end   int64     // offset of the next byte
	ended bool

	reader *Reader // the writer waits for it; nil: there is none
}

// New makes a ring of at most size bytes. The ring starts small and grows.
func New(size int64) *Ring {
	r := &Ring{size: size}
	r.moved.L = &r.mu
	return r
}

// Write stores b. If there is a reader, Write waits for it instead of
// overwriting bytes that it has not read. It never fails.
func (r *Ring) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for rest := b; len(rest) > 0; {
		room := r.size
		if r.reader != nil {
			room = r.reader.at + r.size - r.end
		}
		if room <= 0 {
			r.moved.Wait()
			continue
		}
		n := min(int64(len(rest)), room)
		r.put(rest[:n])
		rest = rest[n:]
		r.moved.Broadcast()
	}
	return len(b), nil
}

// put stores b, which is at most size bytes long.
func (r *Ring) put(b []byte) {
	have := r.end - r.start
	if want := min(have+int64(len(b)), r.size); want > int64(len(r.buf)) {
		grown := make([]byte, min(max(2*want, 4<<10), r.size))
		for o := r.start; o < r.end; {
			part := r.buf[o%int64(len(r.buf)):]
			part = part[:min(int64(len(part)), r.end-o)]
			for len(part) > 0 {
				n := copy(grown[o%int64(len(grown)):], part)
				part, o = part[n:], o+int64(n)
			}
		}
		r.buf = grown
	}
	for len(b) > 0 {
		n := copy(r.buf[r.end%int64(len(r.buf)):], b)
		b, r.end = b[n:], r.end+int64(n)
	}
	r.start = max(r.start, r.end-int64(len(r.buf)))
}

// End marks the end of the stream: nothing more will be written.
func (r *Ring) End() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
	r.moved.Broadcast()
}

// Bytes returns a copy of the stored bytes.
func (r *Ring) Bytes() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]byte, r.end-r.start)
	r.copyAt(out, r.start)
	return out
}

func (r *Ring) copyAt(b []byte, at int64) {
	for len(b) > 0 {
		n := copy(b, r.buf[at%int64(len(r.buf)):])
		b, at = b[n:], at+int64(n)
	}
}

// Reader reads a ring from an offset on.
type Reader struct {
	r    *Ring
	at   int64
	gone bool
}

// Read returns a new reader from offset at, or from the oldest stored byte if
// that is later. If at is negative or beyond the end, the reader begins at the
// end. A former reader ends with io.ErrClosedPipe.
func (r *Ring) Read(at int64) *Reader {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.reader != nil {
		r.reader.gone = true
	}
	if at < 0 || at > r.end {
		at = r.end
	}
	r.reader = &Reader{r: r, at: max(at, r.start)}
	r.moved.Broadcast()
	return r.reader
}

// Offset returns the offset of the next byte.
func (d *Reader) Offset() int64 {
	d.r.mu.Lock()
	defer d.r.mu.Unlock()
	return d.at
}

// Next waits for bytes, copies some of them to b and returns the offset of the
// first. io.EOF is the end. io.ErrClosedPipe means that another reader has
// taken over or that Close was called.
func (d *Reader) Next(ctx context.Context, b []byte) (n int, offset int64, err error) {
	stop := context.AfterFunc(ctx, func() {
		d.r.mu.Lock()
		defer d.r.mu.Unlock()
		d.r.moved.Broadcast()
	})
	defer stop()
	d.r.mu.Lock()
	defer d.r.mu.Unlock()
	for {
		switch {
		case d.gone:
			return 0, d.at, io.ErrClosedPipe
		case d.at < d.r.end:
			n = int(min(int64(len(b)), d.r.end-d.at))
			d.r.copyAt(b[:n], d.at)
			offset = d.at
			d.at += int64(n)
			d.r.moved.Broadcast()
			return n, offset, nil
		case d.r.ended:
			return 0, d.at, io.EOF
		case ctx.Err() != nil:
			return 0, d.at, context.Cause(ctx)
		}
		d.r.moved.Wait()
	}
}

// Close ends the reader: the writer no longer waits for it. Idempotent.
func (d *Reader) Close() {
	d.r.mu.Lock()
	defer d.r.mu.Unlock()
	d.gone = true
	if d.r.reader == d {
		d.r.reader = nil
	}
	d.r.moved.Broadcast()
}
