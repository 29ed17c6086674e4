package host

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"

	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/output"
	"github.com/berth-eval/berth/plugins/surface"
	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/plugins/untrusted"
)

// types are the media types of frames: how their files begin and end in name.
var types = map[string]struct {
	suffix string
	is     func(b []byte) bool
}{
	"image/png":  {".png", func(b []byte) bool { return bytes.HasPrefix(b, []byte("\x89PNG\r\n\x1a\n")) }},
	"image/jpeg": {".jpg", func(b []byte) bool { return bytes.HasPrefix(b, []byte("\xff\xd8\xff")) }},
	"image/webp": {".webp", func(b []byte) bool {
		return len(b) > 12 && bytes.HasPrefix(b, []byte("RIFF")) && string(b[8:12]) == "WEBP"
	}},
}

// keepStep checks a step and puts what it shows into the record.
func (s *Surface) keepStep(l *surface.Line, step *environment.Step) error {
	switch {
	case len(step.Error) > surface.MaxText:
		return s.refused(fmt.Errorf("its error has %d bytes, at most %d are allowed", len(step.Error), surface.MaxText))
	case len(step.Info) > surface.MaxText:
		return s.refused(fmt.Errorf("its info has %d bytes, at most %d are allowed", len(step.Info), surface.MaxText))
	case step.Reward != nil && (math.IsNaN(*step.Reward) || math.IsInf(*step.Reward, 0)):
		return s.refused(fmt.Errorf("%w: its reward is %v", ErrBreach, *step.Reward))
	}
	return s.keep(l, &step.Observation)
}

// keep checks an observation, puts it into the record, and gives all its frames
// as bytes.
func (s *Surface) keep(l *surface.Line, o *environment.Observation) error {
	if err := Check(*o); err != nil {
		return s.refused(err)
	}
	total := 0
	for i := range o.Frames {
		f := &o.Frames[i]
		if err := Load(f, s.o.Spec.Frames); err != nil {
			return s.refused(err)
		}
		if total += len(f.Data); total > surface.MaxFrames {
			return s.refused(fmt.Errorf("the frames of an observation have more than %d bytes", surface.MaxFrames))
		}
		kept, err := s.store(f)
		if err != nil {
			return s.refused(fmt.Errorf("keep a frame: %w", err))
		}
		l.Frames = append(l.Frames, kept)
	}
	l.Text, l.Structure = o.Text, o.JSON
	return nil
}

// refused makes the surface lost because of what it returned.
func (s *Surface) refused(why error) error {
	s.lose(why)
	return s.Err()
}

// Check says how an observation, apart from the bytes of its frames, breaks the
// contract.
func Check(o environment.Observation) error {
	if len(o.Text) > surface.MaxText {
		return fmt.Errorf("the text of an observation has %d bytes, at most %d are allowed", len(o.Text), surface.MaxText)
	}
	if len(o.JSON) > surface.MaxStructure {
		return fmt.Errorf("the structure of an observation has %d bytes, at most %d are allowed", len(o.JSON), surface.MaxStructure)
	}
	var parts map[string]json.RawMessage
	if len(o.JSON) > 0 && (json.Unmarshal(o.JSON, &parts) != nil || parts == nil) {
		return fmt.Errorf("%w: the structure of an observation is not a JSON object", ErrBreach)
	}
	for _, f := range o.Frames {
		if _, known := types[f.MediaType]; !known {
			return fmt.Errorf("%w: frame %q has the media type %q: want image/png, image/jpeg or image/webp", ErrBreach, f.Name, output.First(f.MediaType, 100))
		}
	}
	return nil
}

// Load makes the bytes of a frame available that Check has let through. It
// removes the file of a frame that comes in one. A path that leads out of the
// folder, also by a link, is refused.
func Load(f *environment.Frame, folder string) error {
	if f.Path != "" {
		data, err := untrusted.Read(folder, f.Path, surface.MaxFrame)
		if err != nil {
			return fmt.Errorf("%w: frame %q: %w", ErrBreach, f.Name, err)
		}
		f.Data = data
		_ = os.Remove(filepath.Join(folder, filepath.FromSlash(f.Path))) // it is in the folder; what stays is removed with it
		f.Path = ""
	}
	switch t := types[f.MediaType]; {
	case len(f.Data) > surface.MaxFrame:
		return fmt.Errorf("frame %q has %d bytes, at most %d are allowed", f.Name, len(f.Data), surface.MaxFrame)
	case t.is == nil || !t.is(f.Data):
		return fmt.Errorf("%w: frame %q is not %s", ErrBreach, f.Name, f.MediaType)
	}
	return nil
}

// store writes a frame to the record, once for equal ones.
func (s *Surface) store(f *environment.Frame) (surface.Frame, error) {
	data := f.Data
	if s.o.Mask != nil {
		data = s.o.Mask(data)
	}
	sum := sha256.Sum256(data)
	digest := hex.EncodeToString(sum[:])
	kept := surface.Frame{
		Name: f.Name, MediaType: f.MediaType, File: digest[:32] + types[f.MediaType].suffix, Digest: "sha256:" + digest, Size: int64(len(data)),
	}
	to := filepath.Join(s.o.Frames, kept.File)
	if _, err := os.Lstat(to); err == nil {
		return kept, nil
	}
	if err := os.MkdirAll(s.o.Frames, 0o755); err != nil {
		return kept, err
	}
	return kept, errors.Join(os.WriteFile(to+".new", data, 0o644), os.Rename(to+".new", to))
}

// Capture takes a capture into folder, which must be empty. The files are
// regular files in it and have at most surface.MaxCapture bytes together; with
// an error, what is in the folder is worth nothing. No error means that the
// surface is lost.
func (s *Surface) Capture(ctx context.Context, c environment.Capture) error {
	release, err := s.acquire(ctx)
	if err != nil {
		return err
	}
	defer release()
	ctx, cancel := context.WithTimeoutCause(ctx, s.limit, fmt.Errorf("it did not end within %s", s.limit))
	defer cancel()
	files, err := s.o.Plugin.Capture(ctx, s.id, c)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return err
	}
	return CheckCapture(c.Folder, files)
}

// Captures takes captures into folders below dir, which it removes, and lets keep
// store them by name. It returns what failed.
func (s *Surface) Captures(ctx context.Context, all []task.Capture, dir string, keep func(folder, name string) error) (failed []error) {
	for _, c := range all {
		folder := filepath.Join(dir, c.Name)
		err := os.MkdirAll(folder, 0o700)
		if err == nil {
			err = s.Capture(ctx, environment.Capture{Name: c.Name, Settings: c.Settings, Folder: folder})
		}
		if err == nil {
			err = keep(folder, c.Name)
		}
		if err = errors.Join(err, os.RemoveAll(folder)); err != nil {
			failed = append(failed, fmt.Errorf("capture %s: %w", c.Name, err))
		}
	}
	return failed
}

// CheckCapture says what is wrong with the files of a capture.
func CheckCapture(folder string, files []string) error {
	if len(files) == 0 {
		return errors.New("the capture is empty")
	}
	for _, name := range files {
		f, err := untrusted.Open(folder, name, surface.MaxCapture)
		if err != nil {
			return err
		}
		_ = f.Close()
	}
	var size int64
	return filepath.WalkDir(folder, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		switch {
		case err != nil:
			return err
		case !info.Mode().IsRegular():
			return fmt.Errorf("%s is not a regular file", filepath.Base(p))
		}
		if size += info.Size(); size > surface.MaxCapture {
			return fmt.Errorf("it has more than %d bytes", surface.MaxCapture)
		}
		return nil
	})
}
