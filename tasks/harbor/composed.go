package harbor

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/berth-eval/berth/plugins/task"
	taskfolder "github.com/berth-eval/berth/tasks/internal/folder"
)

// composed converts a build of a compose file for the task: with its context
// relative to the task's folder, and its digest.
func (b *builder) composed(ctx context.Context, file, service string, m *task.Build) (*task.Build, error) {
	if m == nil {
		return nil, nil //nolint:nilnil // a service without a build has none
	}
	dir := path.Join(path.Dir(file), m.Context)
	out := &task.Build{Context: dir, File: m.File, Target: m.Target, Args: m.Args, Files: m.Files}
	if dir == "." {
		out.Exclude = b.hidden()
	}
	if _, inline := m.Files[m.File]; dir != "." && !b.IsDir(dir) || !inline && !b.IsFile(path.Join(dir, m.File)) {
		b.bad(file, "Dockerfile is missing", "Service %s is built of %s, which is not there.", service, path.Join(dir, m.File))
		return out, nil
	}
	digest, err := b.contextDigest(ctx, dir, out.Exclude...)
	out.Digest = digestWith(digest, m.Files)
	return out, err
}

// hidden are the folders of the task that no build sees: a build of the task's own
// folder would give the agent the tests and the solution.
func (b *builder) hidden() (all []string) {
	for _, n := range b.Below(taskfolder.Whole) {
		if hiddenFolder.MatchString(n.Path) {
			all = append(all, n.Path)
		}
	}
	return all
}

var hiddenFolder = regexp.MustCompile(`^(?:steps/[^/]+/)?(?:tests|solution)$`)

// digestWith is the digest of a build context with further files.
func digestWith(digest string, files map[string][]byte) string {
	if len(files) == 0 {
		return digest
	}
	h := sha256.New()
	fmt.Fprintf(h, "%s\x00", digest)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(h, "%s\x00%d\x00%s", name, len(files[name]), files[name])
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}

// withCopies returns the build of an image, which is either named or built, that has
// further files. dir is the folder of the compose file.
func (b *builder) withCopies(dir, image string, build *task.Build, copies map[string][]byte) (string, *task.Build) {
	const file = "berth.copies.Dockerfile"
	out, text := &task.Build{Context: dir}, []byte("FROM "+image+"\n")
	if image == "" && build != nil {
		*out = *build
		text = build.Files[build.File]
		if text == nil {
			var err error
			if text, err = b.read(path.Join(build.Context, build.File)); err != nil {
				b.bad(path.Join(build.Context, build.File), "Dockerfile cannot be read", "%v.", err)
			}
		}
		if text = append(slices.Clip(text), '\n'); build.Target != "" {
			text, out.Target = append(text, "FROM "+build.Target+"\n"...), ""
		}
	} else {
		for _, n := range b.Below(dir) {
			if !strings.Contains(strings.TrimPrefix(n.Path, dir+"/"), "/") {
				out.Exclude = append(out.Exclude, strings.TrimPrefix(n.Path, dir+"/"))
			}
		}
	}
	out.Files = map[string][]byte{}
	for i, to := range slices.Sorted(maps.Keys(copies)) {
		from := fmt.Sprintf("berth.copies/%d", i)
		out.Files[from] = copies[to]
		line, err := json.Marshal([]string{from, to})
		if err != nil {
			panic(err) // a list of texts
		}
		text = append(text, "COPY "+string(line)+"\n"...)
	}
	out.File = file
	out.Files[file] = text
	out.Digest = digestWith(out.Digest, out.Files)
	return "", out
}

// contents returns the files that a compose file in dir names. Links are not followed,
// because they could lead to the tests.
func (b *builder) contents(dir, name string) (map[string][]byte, error) {
	p := path.Join(dir, name)
	regular := func(n *taskfolder.Node) bool { return n != nil && n.Link == "" && n.Mode.IsRegular() }
	if n := b.ByPath[p]; regular(n) {
		data, err := b.read(p)
		return map[string][]byte{"": data}, err
	}
	all := map[string][]byte{}
	for _, n := range b.Below(p) {
		if !regular(&n) {
			continue
		}
		data, err := b.read(n.Path)
		if err != nil {
			return nil, err
		}
		all[strings.TrimPrefix(n.Path, p+"/")] = data
	}
	if n := b.ByPath[p]; len(all) == 0 || n != nil && n.Link != "" {
		return nil, fmt.Errorf("%s is not a file or a folder with files of the task", p)
	}
	return all, nil
}
