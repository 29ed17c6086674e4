package ring

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"testing"
	"time"
)

// Whatever the sizes of writes, a ring keeps exactly the last bytes.
func TestKeepsTheLastBytes(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(1, 2))
	r := New(10_000)
	var all []byte
	for range 300 {
		b := make([]byte, rnd.IntN(700))
		for i := range b {
			b[i] = byte(rnd.Uint32())
		}
		all = append(all, b...)
		if _, err := r.Write(b); err != nil {
			t.Fatal(err)
		}
		got := r.Bytes()
		if !bytes.Equal(got, all[len(all)-len(got):]) {
			t.Fatalf("after %d bytes the ring holds other ones than the last %d", len(all), len(got))
		}
		if want := min(len(all), 10_000); len(got) != want {
			t.Fatalf("after %d bytes the ring holds %d, want %d", len(all), len(got), want)
		}
	}
}

// A reader that is there loses nothing, however slow it is.
func TestReaderIsWaitedFor(t *testing.T) {
	t.Parallel()
	r := New(1000)
	d := r.Read(0)
	go func() {
		for i := range 100 {
			_, _ = r.Write(bytes.Repeat([]byte{byte(i)}, 977))
		}
		r.End()
	}()
	var got []byte
	b := make([]byte, 333)
	for {
		n, at, err := d.Next(t.Context(), b)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil || at != int64(len(got)) {
			t.Fatalf("at %d of %d: %v", at, len(got), err)
		}
		got = append(got, b[:n]...)
	}
	if len(got) != 97_700 || got[97_699] != 99 {
		t.Errorf("got %d bytes, want 97700", len(got))
	}
}

func TestWriterGoesOnWithoutReader(t *testing.T) {
	t.Parallel()
	r := New(1000)
	d := r.Read(0)
	written := make(chan struct{})
	go func() {
		_, _ = r.Write(make([]byte, 50_000))
		close(written)
	}()
	select {
	case <-written:
		t.Fatal("the writer did not wait for the reader")
	case <-time.After(20 * time.Millisecond):
	}
	d.Close()
	<-written
	if _, _, err := d.Next(t.Context(), make([]byte, 1)); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("a closed reader got %v", err)
	}
	again := r.Read(10)
	if again.Offset() != 49_000 {
		t.Errorf("a late reader begins at %d, want 49000, the oldest that is left", again.Offset())
	}
}

func TestNewReaderTakesOver(t *testing.T) {
	t.Parallel()
	r := New(1000)
	first := r.Read(0)
	got := make(chan error, 1)
	go func() {
		_, _, err := first.Next(context.Background(), make([]byte, 1)) //nolint:usetesting // must not end with the test
		got <- err
	}()
	second := r.Read(-1)
	if err := <-got; !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("the first reader got %v, want ErrClosedPipe", err)
	}
	first.Close() // must not take the second's place away
	_, _ = r.Write([]byte("x"))
	b := make([]byte, 1)
	if _, _, err := second.Next(t.Context(), b); err != nil || b[0] != 'x' {
		t.Errorf("the second reader got %q, %v", b, err)
	}
}

func TestNextEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, _, err := New(10).Read(0).Next(ctx, make([]byte, 1)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}
