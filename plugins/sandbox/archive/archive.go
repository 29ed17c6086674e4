// Package archive packs and extracts folders as tar streams, both on the host
// and in sandboxd. The other end may be hostile, so names, links, file types,
// sizes and counts are checked before anything is written, and nothing is
// written or read through a link.
//
// It must not keep a whole archive in memory and must not trust a header.
package archive

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/berth-eval/berth/plugins/fault"
)

// Limits bound an archive. A zero field means its default.
type Limits struct {
	Bytes   int64 // of file contents together; default 4 GiB
	Entries int64 // default 100,000
	Name    int   // bytes of an entry's name; default 4,095, as in a path of Linux
	Depth   int   // folders in each other; default 128
}

// Limits for extracting on the host. The folder's path and the name together
// must stay within the longest path that Linux accepts, here and wherever the
// file is copied to.
const (
	HostName  = 1024 // bytes
	HostDepth = 64
)

const (
	defaultBytes   = 4 << 30
	defaultEntries = 100_000

	maxName  = 4095 // bytes, as in a path of Linux
	maxPart  = 255
	maxDepth = 128     // each open folder holds a descriptor
	perEntry = 8 << 10 // of a stream: a header, padding and the records of an honest entry
)

func (l Limits) orDefault() Limits {
	if l.Bytes <= 0 {
		l.Bytes = defaultBytes
	}
	if l.Entries <= 0 {
		l.Entries = defaultEntries
	}
	if l.Name <= 0 || l.Name > maxName {
		l.Name = maxName
	}
	if l.Depth <= 0 || l.Depth > maxDepth {
		l.Depth = maxDepth
	}
	return l
}

// Report is the result of packing or extracting.
type Report struct {
	Entries int64 // files, folders and links
	Bytes   int64 // of file contents
	// Skipped are entries that were left out, at most 100 of them; more are
	// only counted.
	Skipped      []Skipped
	SkippedCount int64
}

// Skipped is an entry that was left out.
type Skipped struct {
	Name string // as in the archive: hostile text
	Why  string
}

func (r *Report) skip(name string, why error) {
	r.SkippedCount++
	if len(r.Skipped) < 100 {
		r.Skipped = append(r.Skipped, Skipped{Name: name, Why: why.Error()})
	}
}

// CheckName returns the clean, relative form of an entry's name; "." is the
// folder itself. It fails with an error that wraps ErrUnsafe for an absolute
// name, a name with a part "..", a name that Linux does not allow, or a name
// beyond the Name and Depth of limits.
func CheckName(name string, limits Limits) (string, error) {
	limits = limits.orDefault()
	switch {
	case name == "":
		return "", fmt.Errorf("%w: empty name", fault.ErrUnsafe)
	case strings.HasPrefix(name, "/"):
		return "", fmt.Errorf("%w: absolute name", fault.ErrUnsafe)
	case len(name) > limits.Name:
		return "", fmt.Errorf("%w: name of %d bytes, at most %d are allowed", fault.ErrUnsafe, len(name), limits.Name)
	case strings.IndexByte(name, 0) >= 0:
		return "", fmt.Errorf("%w: zero byte in the name", fault.ErrUnsafe)
	}
	depth := 0
	for part := range strings.SplitSeq(name, "/") {
		switch {
		case part == "..":
			return "", fmt.Errorf("%w: %q in the name", fault.ErrUnsafe, "..")
		case len(part) > maxPart:
			return "", fmt.Errorf("%w: name with a part of %d bytes", fault.ErrUnsafe, len(part))
		}
		depth++
	}
	if depth > limits.Depth {
		return "", fmt.Errorf("%w: %d folders deep, at most %d are allowed", fault.ErrUnsafe, depth, limits.Depth)
	}
	return path.Clean(name), nil
}

// reader is a tar reader that counts, for all who read archives.
type reader struct {
	t      *tar.Reader
	left   Limits
	report *Report
}

// newReader also limits the length of the stream, because headers alone could
// continue without end.
func newReader(r io.Reader, l Limits, report *Report) *reader {
	l = l.orDefault()
	raw := &limited{r: r, left: l.Bytes + (l.Entries+16)*perEntry}
	return &reader{t: tar.NewReader(raw), left: l, report: report}
}

// next returns the next allowed entry, with a clean name and a checked size.
// For any other entry it calls refuse: an error from refuse ends the archive,
// nil skips the entry. io.EOF is the end.
func (r *reader) next(refuse func(name string, why error) error) (*tar.Header, error) {
	for {
		head, err := r.t.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil, io.EOF
		case errors.Is(err, fault.ErrTooLarge):
			return nil, err
		case err != nil:
			return nil, fmt.Errorf("%w: archive: %w", fault.ErrInvalid, err)
		}
		if r.left.Entries--; r.left.Entries < 0 {
			return nil, fmt.Errorf("%w: too many entries", fault.ErrTooLarge)
		}
		why := r.check(head)
		if errors.Is(why, fault.ErrTooLarge) {
			return nil, fmt.Errorf("entry %q: %w", head.Name, why)
		}
		if why == nil {
			r.report.Entries++
			r.report.Bytes += head.Size
			return head, nil
		}
		if err := refuse(head.Name, why); err != nil {
			return nil, err
		}
	}
}

func (r *reader) check(head *tar.Header) error {
	name, err := CheckName(head.Name, r.left)
	if err != nil {
		return err
	}
	switch head.Typeflag {
	case tar.TypeReg, tar.TypeGNUSparse:
		if head.Size < 0 || head.Size > r.left.Bytes { // of what it unpacks to, holes and all
			return fmt.Errorf("%w: contents of %d bytes, %d are left", fault.ErrTooLarge, head.Size, r.left.Bytes)
		}
		r.left.Bytes -= head.Size
		head.Typeflag = tar.TypeReg
	case tar.TypeDir:
		head.Size = 0
	case tar.TypeSymlink:
		if head.Linkname == "" || len(head.Linkname) > maxName || strings.IndexByte(head.Linkname, 0) >= 0 {
			return fmt.Errorf("%w: link to nowhere", fault.ErrUnsafe)
		}
		head.Size = 0
	case tar.TypeLink:
		return fmt.Errorf("%w: hard link", fault.ErrUnsafe)
	case tar.TypeChar, tar.TypeBlock:
		return fmt.Errorf("%w: device", fault.ErrUnsafe)
	case tar.TypeFifo:
		return fmt.Errorf("%w: named pipe", fault.ErrUnsafe)
	default:
		return fmt.Errorf("%w: entry of type %q", fault.ErrUnsafe, head.Typeflag)
	}
	if name == "." && head.Typeflag != tar.TypeDir {
		return fmt.Errorf("%w: %q is not a folder", fault.ErrUnsafe, head.Name)
	}
	head.Name = name
	return nil
}

// limited is io.LimitReader with an error at its end.
type limited struct {
	r    io.Reader
	left int64
}

func (l *limited) Read(b []byte) (int, error) {
	if l.left <= 0 {
		return 0, fmt.Errorf("%w: the archive is longer than its limits allow", fault.ErrTooLarge)
	}
	if int64(len(b)) > l.left {
		b = b[:l.left]
	}
	n, err := l.r.Read(b)
	l.left -= int64(n)
	return n, err
}

// Clean copies the archive r to w in a form that sandboxd accepts. An entry
// that sandboxd would refuse ends the copy with an error that wraps ErrUnsafe
// and names the entry. Owners, permission bits beyond 0777 and extended attributes
// are dropped.
func Clean(w io.Writer, r io.Reader, l Limits) (report Report, err error) {
	in, out := newReader(r, l, &report), tar.NewWriter(w)
	for {
		head, err := in.next(report.refusal(false))
		if errors.Is(err, io.EOF) {
			return report, out.Close()
		}
		if err != nil {
			return report, err
		}
		name := head.Name
		if head.Typeflag == tar.TypeDir {
			name += "/"
		}
		if err := out.WriteHeader(&tar.Header{
			Typeflag: head.Typeflag, Name: name, Linkname: head.Linkname, Size: head.Size,
			Mode: head.Mode & 0o777, ModTime: head.ModTime,
		}); err != nil {
			return report, fmt.Errorf("entry %q: %w", name, err)
		}
		if head.Size == 0 {
			continue // a folder or a link: no buffer need be made
		}
		if _, err := io.Copy(out, in.t); err != nil {
			return report, fmt.Errorf("entry %q: %w", name, err)
		}
	}
}

// refusal returns the refuse function for reader.next, which ends the archive
// or skips the entry.
func (r *Report) refusal(skip bool) func(string, error) error {
	return func(name string, why error) error {
		if !skip {
			return fmt.Errorf("entry %q: %w", name, why)
		}
		r.skip(name, why)
		return nil
	}
}
