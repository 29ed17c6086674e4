package bundler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/klauspost/compress/zstd"

	"github.com/berth-eval/berth/plugins/agent/bundle"
	"github.com/berth-eval/berth/plugins/sandbox/archive"
	"github.com/berth-eval/berth/plugins/untrusted"
)

// limits of an archive of a bundle.
var limits = archive.Limits{Bytes: 16 << 30, Entries: 1_000_000}

// maxManifest bounds the manifest of a bundle, in bytes.
const maxManifest = 64 << 20

// Export writes a bundle to w as a tar archive compressed with Zstandard. It
// refuses a bundle that differs from its manifest, as Import would.
func Export(b bundle.Bundle, w io.Writer) error {
	if err := b.Verify(); err != nil {
		return fmt.Errorf("export bundle %s: %w", b.ID(), err)
	}
	z, err := zstd.NewWriter(w)
	if err != nil {
		return err
	}
	_, err = archive.PackFolder(z, b.Folder, archive.Packing{Limits: limits})
	if err = errors.Join(err, z.Close()); err != nil {
		return fmt.Errorf("export bundle %s: %w", b.ID(), err)
	}
	return nil
}

// Import installs an archive written by Export. It checks the content against
// the digest in the archive. A bundle with the same name and another digest is
// replaced only if again is set.
func Import(ctx context.Context, dir string, r io.Reader, again bool) (b bundle.Bundle, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("import bundle: %w", err)
		}
	}()
	if err = bundle.MakeFolder(dir); err != nil {
		return b, err
	}
	work, done, err := workIn(dir)
	if err != nil {
		return b, err
	}
	defer func() { err = errors.Join(err, done()) }()
	z, err := zstd.NewReader(r)
	if err != nil {
		return b, err
	}
	defer z.Close()
	whole := filepath.Join(work, "whole")
	report, err := archive.ExtractFolder(whole, z, archive.Extraction{Limits: limits, Links: true})
	if err != nil {
		return b, err
	}
	if report.SkippedCount > 0 {
		return b, fmt.Errorf("%d entries of the archive are none of a bundle, the first is %q: %s", report.SkippedCount, report.Skipped[0].Name, report.Skipped[0].Why)
	}
	if err = forEverybody(whole); err != nil {
		return b, err
	}
	raw, err := untrusted.Read(whole, bundle.ManifestFile, maxManifest)
	if err != nil {
		return b, errors.New("the archive is not a bundle: there is no " + bundle.ManifestFile)
	}
	var m bundle.Manifest
	if err = json.Unmarshal(raw, &m); err != nil {
		return b, fmt.Errorf("%s: %w", bundle.ManifestFile, err)
	}
	if _, _, err = bundle.Parse(m.ID()); err != nil || m.Format != 1 || m.Place != bundle.Place {
		return b, errors.New("the bundle is of another version of Berth")
	}
	fresh := bundle.Bundle{Manifest: m, Folder: whole}
	if err = fresh.Verify(); err != nil {
		return b, err
	}
	unlock, err := lock(ctx, dir, m.ID())
	if err != nil {
		return b, err
	}
	defer unlock()
	if old, err := bundle.Open(dir, m.Name, m.Version); err == nil && old.Digest != m.Digest && !again {
		return old, fmt.Errorf("%s is there with the digest %s, the archive's is %s: say --again to replace it", m.ID(), old.Digest, m.Digest)
	}
	return settle(dir, work, m)
}

// forEverybody sets the modes of a bundle: every user can read it and only the
// owner can change it, whatever the archive says.
func forEverybody(root string) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Type() == fs.ModeSymlink {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		mode := fs.FileMode(0o644)
		if d.IsDir() || info.Mode()&0o111 != 0 {
			mode = 0o755
		}
		if info.Mode().Perm() == mode {
			return nil
		}
		return os.Chmod(path, mode)
	})
}
