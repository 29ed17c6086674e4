package main

import (
	"bytes"
	"io/fs"
	"time"
)

// The files that an agent writes.
const (
	fileHTML       = "index.html"
	fileCSS        = "style.css"
	fileJavaScript = "script.js"
)

// written are the files of the result: those that the agent has written in place of
// the target's, and the other files of the task. It does not change.
type written struct {
	files map[string]string
	rest  fs.FS
}

// Open implements fs.FS.
func (w written) Open(name string) (fs.File, error) {
	switch name {
	case fileHTML, fileCSS, fileJavaScript:
		text, ok := w.files[name]
		if !ok && name != fileHTML { // a page that is not written is empty
			return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
		}
		return &memory{bytes.NewReader([]byte(text)), name}, nil
	}
	return w.rest.Open(name)
}

// memory is a file in memory.
type memory struct {
	*bytes.Reader

	name string
}

func (m *memory) Stat() (fs.FileInfo, error) { return m, nil }
func (*memory) Close() error                 { return nil }
func (m *memory) Name() string               { return m.name }
func (*memory) Mode() fs.FileMode            { return 0o444 }
func (*memory) ModTime() time.Time           { return time.Time{} }
func (*memory) IsDir() bool                  { return false }
func (*memory) Sys() any                     { return nil }
