package trial

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/berth-eval/berth/core/record"
)

// verifierDir returns the folder where the attempt keeps the files that a
// verifier wrote on the host: verifier/, with a subfolder for each stage, round
// and verifier if there are several.
func (s *stage) verifierDir(j judgement) string {
	dir := s.verifierFiles()
	if len(s.a.task.Stages) > 1 {
		dir = filepath.Join(dir, s.task.Name)
	}
	if j.round > 0 {
		dir = filepath.Join(dir, fmt.Sprintf("round-%d", j.round))
	}
	if len(s.task.Verifiers) > 1 {
		dir = filepath.Join(dir, plainName(j.use.Name, j.number))
	}
	return dir
}

// numbered names a judgement.
func (s *stage) numbered(j judgement) string {
	return fmt.Sprintf("%d-%d-%d", s.i+1, j.round, j.number)
}

// verifierFiles is the folder of the attempt with the files of verifiers.
func (s *stage) verifierFiles() string {
	return filepath.Join(s.a.in.Record.Dir(), record.VerifierDir)
}

// plainName returns a verifier's name as the name of a folder, or a number if
// the name is not suitable.
func plainName(name string, number int) string {
	if name == "" || strings.ContainsFunc(name, func(r rune) bool {
		return r != '-' && r != '_' && (r < 'a' || r > 'z') && (r < '0' || r > '9')
	}) {
		return fmt.Sprint(number)
	}
	return name
}
