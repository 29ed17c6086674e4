// Package nodecheck finds out whether a node of a cluster can make the attempts of an
// experiment: one job looks at what the node has, and reports it in a folder that the
// node and the machine that submits both see.
//
//	request.json   what the node is to look at
//	began.json     the node's first sign of life
//	answer.json    the answer to it
//	report.json    what the node found
//	job.out        what the job prints
//
// It must not know a scheduler.
package nodecheck

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/core/gateway/uplink"
	"github.com/berth-eval/berth/plugins/untrusted"
)

// Request is what the submitting end asks a node to look at. All paths are absolute.
type Request struct {
	Host    string            `json:"host"` // of the submitting end
	UID     int               `json:"uid"`
	Scratch string            `json:"scratch,omitempty"` // as in the executor block
	Files   map[string]string `json:"files"`             // programs that pilots need: path to digest; empty: no digest is known
	Folders []string          `json:"folders"`           // that pilots need, such as datasets
	Relay   uplink.Place      `json:"relay"`
}

// Report is what a node found.
type Report struct {
	Host    string         `json:"host"`
	Problem string         `json:"problem,omitempty"`
	Missing []string       `json:"missing,omitempty"` // files and folders that are not there
	Differ  []string       `json:"differ,omitempty"`  // files with another digest
	Answer  float64        `json:"answer_s"`          // until this end saw the answer to its first file
	Late    string         `json:"late,omitempty"`    // why it saw none
	Links   string         `json:"links,omitempty"`   // what is wrong with hard links in the folder
	Scratch Scratch        `json:"scratch"`
	Relay   Reached        `json:"relay"`
	Doctor  *output.Doctor `json:"doctor,omitempty"`
}

// Scratch is the folder for attempts that are under way.
type Scratch struct {
	Dir    string `json:"dir,omitempty"`
	Free   int64  `json:"free_mib,omitempty"`
	Marker string `json:"marker,omitempty"` // a file that is only there while the node works
	Failed string `json:"failed,omitempty"`
}

// Reached says at which address the node found the relay.
type Reached struct {
	Address string `json:"address,omitempty"`
	Failed  string `json:"failed,omitempty"`
}

const (
	requestFile = "request.json"
	beganFile   = "began.json"
	answerFile  = "answer.json"
	reportFile  = "report.json"
	outFile     = "job.out"
	takenFile   = "taken" // a name that the node must not get by a hard link
	linkedFile  = "linked"

	// patience is how long the node waits for the answer. The caches of shared file
	// systems last up to a minute.
	patience = 150 * time.Second
	// tick is how often each end looks.
	tick = 20 * time.Millisecond
	// maxFile bounds what is read of a file of the other end.
	maxFile = 4 << 20
)

// Out is the file for what the job prints.
func Out(dir string) string { return filepath.Join(dir, outFile) }

// publish makes a file appear in dir with its whole content. The name is new.
func publish(dir, name string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".new-")
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), filepath.Join(dir, name))
	}
	return err
}

// read reads what publish wrote.
func read(dir, name string, v any) error {
	b, err := untrusted.Read(dir, name, maxFile)
	if err == nil {
		err = json.Unmarshal(b, v)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", filepath.Join(dir, name), err)
	}
	return nil
}

// listed reports whether a listing of dir has a name. It does not look the name up,
// because the answer that it does not exist may be remembered.
func listed(dir, name string) bool {
	entries, _ := os.ReadDir(dir) //nolint:errcheck // it is asked again
	for _, e := range entries {
		if e.Name() == name {
			return true
		}
	}
	return false
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
