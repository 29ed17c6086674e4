package collect

import (
	"errors"
	"io"
	"os"
	"path/filepath"
)

// secret is one that was masked in a file.
type secret struct {
	at    int64
	value string
}

// maxSecrets is how many secrets of one file are put back, so that an agent that
// writes nothing else cannot use up the memory. The others stay masked.
const maxSecrets = 1 << 20

// unmask copies a file of root to the same path in another folder, with its secrets.
func unmask(root *os.Root, name, folder string, found []secret) error {
	in, err := root.Open(name)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	to := filepath.Join(folder, name)
	if err = os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, info.Mode())
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	for _, s := range found {
		if err == nil {
			_, err = out.WriteAt([]byte(s.value), s.at)
		}
	}
	return errors.Join(err, out.Close())
}
