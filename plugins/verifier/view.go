package verifier

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/berth-eval/berth/plugins/untrusted"
)

// ReadFile reads a file of the view, by its slash-separated name, such as
// "attempt/artifacts/answer.txt". Below attempt/ everything comes from the agent,
// so a link, a pipe, a device or more than limit bytes is an error, and nothing
// outside the view is opened. A file that is not there is ErrArtifactMissing.
func (r *Request) ReadFile(name string, limit int64) ([]byte, error) {
	data, err := untrusted.Read(r.View, name, limit)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w", name, ErrArtifactMissing)
	}
	if err != nil {
		return nil, fmt.Errorf("view: %w", err)
	}
	return data, nil
}
