package sandbox

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path"

	pb "github.com/berth-eval/berth/plugins/proto/v1/sandboxpb"
	"github.com/berth-eval/berth/plugins/sandbox/archive"
	"github.com/berth-eval/berth/plugins/sandbox/stream"
)

// Upload extracts the tar archive below dir, which is created if it is missing;
// empty means the session's folder. The archive may come from anywhere, even
// from another sandbox: it is checked and rewritten here before sandboxd reads
// it. A name that leads out of dir, a hard link or a device is ErrUnsafe;
// entries before it stay extracted. A file replaces an existing file, and
// nothing is written through a link.
func (c *Client) Upload(ctx context.Context, dir string, tar io.Reader, o UploadOptions) error {
	return c.upload(ctx, dir, o, func(w io.Writer) error {
		_, err := archive.Clean(w, tar, o.Limits)
		return err
	})
}

// UploadFolder copies the content of a folder of the host, or a single file, to
// the folder dir of the sandbox. Links are copied as links.
func (c *Client) UploadFolder(ctx context.Context, host, dir string, o UploadOptions) error {
	return c.upload(ctx, dir, o, func(w io.Writer) error {
		_, err := archive.PackFolder(w, host, archive.Packing{Limits: o.Limits, Skip: o.Skip})
		return err
	})
}

// WriteFile writes one file and creates its folder if it is missing.
func (c *Client) WriteFile(ctx context.Context, name string, data []byte, o FileOptions) error {
	dir, base := path.Split(path.Clean(name))
	if base == "" || base == "." || base == ".." {
		return fmt.Errorf("write %q: %w: not the name of a file", name, ErrInvalid)
	}
	if o.Mode == 0 {
		o.Mode = 0o644
	}
	return c.upload(ctx, dir, UploadOptions{User: o.User}, func(w io.Writer) error {
		t := tar.NewWriter(w)
		head := tar.Header{Typeflag: tar.TypeReg, Name: base, Mode: int64(o.Mode.Perm()), Size: int64(len(data))}
		if err := t.WriteHeader(&head); err != nil {
			return err
		}
		if _, err := t.Write(data); err != nil {
			return err
		}
		return t.Close()
	})
}

// upload sends what pack writes.
func (c *Client) upload(ctx context.Context, dir string, o UploadOptions, pack func(io.Writer) error) error {
	op := fmt.Sprintf("upload to %q", dir)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	st, err := c.shell.Upload(ctx)
	if err != nil {
		return c.failed(ctx, op, err)
	}
	start := &pb.UploadStart{Dir: []byte(dir), User: o.User, MaxBytes: o.Limits.Bytes, MaxEntries: o.Limits.Entries}
	send := func(b []byte) error {
		m := &pb.UploadRequest{Start: start, Data: b}
		start = nil
		return st.Send(m)
	}
	w := stream.Writer(send)
	if err = pack(w); err == nil {
		err = w.Flush()
	}
	if err == nil && start != nil { // nothing was written
		err = send(nil)
	}
	if err != nil && !errors.Is(err, io.EOF) { // EOF: the server has answered already
		return fmt.Errorf("%s: %w", op, err)
	}
	_, err = st.CloseAndRecv()
	return c.failed(ctx, op, err)
}

// Download writes a file or folder to w as a tar archive: a folder's entries
// are relative to it, a file is one entry. The archive comes from the sandbox
// and cannot be trusted: use DownloadFolder or package archive to extract it on
// the host. A zero limit is 4 GiB, 100,000 entries; more is ErrTooLarge.
func (c *Client) Download(ctx context.Context, path string, w io.Writer, l archive.Limits) error {
	op := fmt.Sprintf("download %q", path)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	st, err := c.shell.Download(ctx, &pb.DownloadRequest{Path: []byte(path), MaxBytes: l.Bytes, MaxEntries: l.Entries, Follow: true})
	if err != nil {
		return c.failed(ctx, op, err)
	}
	for {
		m, err := st.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return c.failed(ctx, op, err)
		}
		if _, err := w.Write(m.GetData()); err != nil {
			return fmt.Errorf("%s: %w", op, err)
		}
	}
}

// DownloadFolder copies a file or folder of the sandbox into a folder of the
// host, which is created if it is missing. It leaves out and reports links,
// everything else that could lead out of the folder, and names that are too
// long or too deep for a host (archive.HostName and HostDepth); permission bits
// are kept, owners are not.
func (c *Client) DownloadFolder(ctx context.Context, path, host string, l archive.Limits) (archive.Report, error) {
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := c.Download(ctx, path, w, l)
		_ = w.CloseWithError(err)
		done <- err
	}()
	report, err := archive.ExtractFolder(host, r, archive.Extraction{Limits: l})
	_ = r.CloseWithError(errors.New("extracting has ended")) // the padding after the end of an archive is of no use
	if sent := <-done; sent != nil && err == nil {
		err = sent
	} else if sent != nil && errors.Is(err, sent) {
		err = sent // this error is enough
	}
	return report, err
}

// ReadFile reads one regular file of at most limit bytes (ErrTooLarge above).
func (c *Client) ReadFile(ctx context.Context, name string, limit int64) ([]byte, error) {
	var b bytes.Buffer
	if limit <= 0 {
		return nil, fmt.Errorf("read %q: %w: limit is %d bytes, want at least 1", name, ErrInvalid, limit)
	}
	if err := c.Download(ctx, name, &boundedBuffer{&b, limit + 64<<10}, archive.Limits{Bytes: limit, Entries: 1}); err != nil {
		if errors.Is(err, ErrTooLarge) { // a folder has more entries than one
			if info, stat := c.Stat(ctx, name); stat == nil && info.Kind != File {
				return nil, fmt.Errorf("read %q: %w: it is a %s", name, ErrUnsafe, info.Kind)
			}
		}
		return nil, err
	}
	t := tar.NewReader(&b)
	head, err := t.Next()
	switch {
	case err != nil:
		return nil, fmt.Errorf("read %q: archive: %w", name, err)
	case head.Typeflag != tar.TypeReg:
		return nil, fmt.Errorf("read %q: %w: it is not a file", name, ErrUnsafe)
	case head.Size > limit:
		return nil, fmt.Errorf("read %q: %w: %d bytes, %d are allowed", name, ErrTooLarge, head.Size, limit)
	}
	data, err := io.ReadAll(t)
	if err != nil {
		return nil, fmt.Errorf("read %q: archive: %w", name, err)
	}
	return data, nil
}

// boundedBuffer limits memory even if sandboxd ignores the limit.
type boundedBuffer struct {
	b    *bytes.Buffer
	left int64
}

func (b *boundedBuffer) Write(p []byte) (int, error) {
	if b.left -= int64(len(p)); b.left < 0 {
		return 0, ErrTooLarge
	}
	return b.b.Write(p)
}

// Read reads one regular file of at most limit bytes, of any owner. name is
// absolute, and no part of it may be a link. Verifiers read scores with it,
// because sandboxd itself reads the file. It works only in a verifier's session
// (otherwise ErrDenied). It fails with ErrNotFound, ErrUnsafe or ErrTooLarge.
func (c *Client) Read(ctx context.Context, name string, limit int64) ([]byte, error) {
	op := fmt.Sprintf("read %q", name)
	r, err := c.shell.Read(ctx, &pb.ReadRequest{Path: []byte(name), MaxBytes: limit})
	if err != nil {
		return nil, c.failed(ctx, op, err)
	}
	return r.GetData(), nil
}
