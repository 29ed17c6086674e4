package local

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/berth-eval/berth/environments/local/internal/image"
	"github.com/berth-eval/berth/environments/local/internal/maker"
	"github.com/berth-eval/berth/plugins/environment"
)

// keptImages is how many packed images a process keeps open.
const keptImages = 64

// images packs the files of an image once per content, however many ask.
type images struct {
	dir func() (string, error) // for files without a name

	mu     sync.Mutex
	packed map[string]*packed // by digest and Dockerfile
}

// packed are the files of one image.
type packed struct {
	once sync.Once
	tar  *os.File // nil: there are none
	err  error

	images *images
	key    string // empty: it is not kept
	uses   int    // guarded by images.mu
}

func newImages(dir func() (string, error)) *images {
	return &images{dir: dir, packed: map[string]*packed{}}
}

// files packs im, or finds it packed. The caller releases what it gets.
func (is *images) files(im *image.Image) (*packed, error) {
	p := &packed{images: is, uses: 1}
	if of := im.Build; of.Digest != "" {
		p = is.take(fmt.Sprint(of.Digest, " ", of.File, " ", of.Target, " ", of.Args))
	}
	p.once.Do(func() { p.tar, p.err = is.pack(im) })
	if p.err != nil {
		err := p.err
		p.forget()
		p.release()
		return nil, err
	}
	return p, nil
}

func (is *images) take(key string) *packed {
	is.mu.Lock()
	defer is.mu.Unlock()
	p := is.packed[key]
	if p == nil {
		for k, old := range is.packed {
			if len(is.packed) < keptImages {
				break
			}
			if old.uses == 0 {
				delete(is.packed, k)
				old.close()
			}
		}
		p = &packed{images: is, key: key}
		is.packed[key] = p
	}
	p.uses++
	return p
}

// pack writes the archive to a file that has no name: it is gone with us.
func (is *images) pack(im *image.Image) (*os.File, error) {
	if im.Empty() {
		return nil, nil
	}
	f, err := is.nameless("image-")
	if err != nil {
		return nil, err
	}
	if err = im.Pack(&limited{f, maker.Memory()}, isBaseFolder); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// nameless makes a file that is gone with this process.
func (is *images) nameless(prefix string) (*os.File, error) {
	dir, err := is.dir()
	if err != nil {
		return nil, err
	}
	f, err := os.CreateTemp(dir, prefix)
	if err != nil {
		return nil, err
	}
	if err = os.Remove(f.Name()); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// limited is a file that holds so many bytes more: an archive of a task may
// unpack to any size, and no sandbox could hold more than the memory.
type limited struct {
	f    *os.File
	left int64
}

// Write writes all of p, or fails.
func (l *limited) Write(p []byte) (int, error) {
	if l.left -= int64(len(p)); l.left < 0 {
		return 0, fmt.Errorf("%w: the files of the image are more than this machine's memory", environment.ErrBuildFailed)
	}
	return l.f.Write(p)
}

// isBaseFolder says whether a path inside is a folder before anything is
// copied.
func isBaseFolder(p string) bool {
	switch top, _, _ := strings.Cut(strings.TrimPrefix(p, "/"), "/"); top {
	case "":
		return true
	case "usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "etc":
		info, err := os.Stat(filepath.Clean(p))
		return err == nil && info.IsDir()
	default:
		return maker.IsFresh(p)
	}
}

func (p *packed) file() *os.File { return p.tar }

// forget makes the next caller try again.
func (p *packed) forget() {
	p.images.mu.Lock()
	defer p.images.mu.Unlock()
	if p.images.packed[p.key] == p {
		delete(p.images.packed, p.key)
		p.key = ""
	}
}

func (p *packed) release() {
	p.images.mu.Lock()
	defer p.images.mu.Unlock()
	p.uses--
	if p.key == "" && p.uses == 0 {
		p.close()
	}
}

func (p *packed) close() {
	if p.tar != nil {
		_ = p.tar.Close() // read only
		p.tar = nil
	}
}

func (is *images) close() error {
	is.mu.Lock()
	defer is.mu.Unlock()
	for _, p := range is.packed {
		p.close()
	}
	clear(is.packed)
	return nil
}
