package verifier

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// ReadFile reads a file of the view, by its slash-separated name, such as
// "attempt/artifacts/answer.txt". Below attempt/ everything comes from the agent,
// so a link, a pipe, a device or more than limit bytes is an error, and nothing
// outside the view is opened. A file that is not there is ErrArtifactMissing.
func (r *Request) ReadFile(name string, limit int64) ([]byte, error) {
	root, err := os.OpenRoot(r.View)
	if err != nil {
		return nil, fmt.Errorf("open the view: %w", err)
	}
	defer func() { _ = root.Close() }()
	name = filepath.FromSlash(name)
	info, err := root.Lstat(name) // the view does not change between this check and Open
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w", name, ErrArtifactMissing)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s of the view: %w", name, err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("read %s of the view: it is not a regular file (%s)", name, info.Mode().Type())
	}
	f, err := root.Open(name)
	if err != nil {
		return nil, fmt.Errorf("read %s of the view: %w", name, err)
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, fmt.Errorf("read %s of the view: %w", name, err)
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("read %s of the view: more than %d bytes", name, limit)
	}
	return data, nil
}
