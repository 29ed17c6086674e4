package stream

import (
	"fmt"

	"google.golang.org/grpc/encoding"
	protocodec "google.golang.org/grpc/encoding/proto" // importing it registers its codec
	"google.golang.org/grpc/mem"
)

// message is a message with the generated code of protoc-gen-go-vtproto.
type message interface {
	SizeVT() int
	MarshalToSizedBufferVT(buf []byte) (int, error)
	UnmarshalVT(data []byte) error
}

// codec is gRPC's own codec, but uses generated code for messages that have it.
// gRPC's codec inspects each kind of message by reflection once per process.
// That would be a tenth of sandboxd's work, because sandboxd usually lives for
// a short time.
//
// It does not check whether strings are UTF-8. Its users receive only from the
// core, and the core checks on its side.
type codec struct{ general encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2(protocodec.Name)} }

// Name is part of the content type.
func (codec) Name() string { return protocodec.Name }

// Marshal encodes a message.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	m, ok := v.(message)
	if !ok {
		return c.general.Marshal(v)
	}
	size := m.SizeVT()
	if mem.IsBelowBufferPoolingThreshold(size) {
		buf := make([]byte, size)
		if _, err := m.MarshalToSizedBufferVT(buf); err != nil {
			return nil, fmt.Errorf("marshal %T: %w", v, err)
		}
		return mem.BufferSlice{mem.SliceBuffer(buf)}, nil
	}
	pool := mem.DefaultBufferPool()
	buf := pool.Get(size)
	if _, err := m.MarshalToSizedBufferVT((*buf)[:size]); err != nil {
		pool.Put(buf)
		return nil, fmt.Errorf("marshal %T: %w", v, err)
	}
	return mem.BufferSlice{mem.NewBuffer(buf, pool)}, nil
}

// Unmarshal decodes data into an empty message.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(message)
	if !ok {
		return c.general.Unmarshal(data, v)
	}
	buf := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buf.Free()
	if err := m.UnmarshalVT(buf.ReadOnlyData()); err != nil { // copies the bytes that it keeps
		return fmt.Errorf("unmarshal %T: %w", v, err)
	}
	return nil
}
