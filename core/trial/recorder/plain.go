package recorder

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

// plain keeps those files of the record that held secrets, as they were: they are what
// verifiers judge.
type plain struct {
	sync.Mutex // of the order of lines

	record string                 // the folder of the record
	folder func() (string, error) // makes the folder for these files, which goes with the attempt; nil: none are kept
	files  map[string]bool
}

// KeepPlain also keeps the lines of the record in record as they were. Each file that
// held secrets is whole in the folder that folder makes.
func (s *Recorder) KeepPlain(record string, folder func() (string, error)) {
	s.plain.record, s.plain.folder, s.plain.files = record, folder, map[string]bool{}
}

// add adds a line to a file that has held secrets, or begins one with the first line
// that does. The caller holds the lock, and adds the line to the record afterwards.
func (p *plain) add(file string, raw, masked []byte) error {
	if p.folder == nil || !p.files[file] && bytes.Equal(raw, masked) {
		return nil
	}
	dir, err := p.folder()
	if err != nil {
		return err
	}
	out, err := os.OpenFile(filepath.Join(dir, file), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if !p.files[file] {
		err = before(out, filepath.Join(p.record, file))
		p.files[file] = true
	}
	if err == nil {
		_, err = out.Write(append(raw, '\n'))
	}
	return errors.Join(err, out.Close())
}

// before copies the lines that are in the record.
func before(out io.Writer, file string) error {
	in, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer in.Close()
	_, err = io.Copy(out, in)
	return err
}
