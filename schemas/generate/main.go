// Command generate writes the schemas beside the package that describes them.
// go generate runs it in that folder.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/berth-eval/berth/schemas"
)

func main() {
	if err := write(); err != nil {
		fmt.Fprintln(os.Stderr, "generate schemas:", err)
		os.Exit(1)
	}
}

func write() error {
	if err := os.Chdir(".."); err != nil {
		return err
	}
	for _, s := range schemas.All() {
		b, err := s.JSON()
		if err != nil {
			return fmt.Errorf("%s: %w", s.Name, err)
		}
		if err = os.WriteFile(filepath.Join("schemas", s.Name+".json"), b, 0o644); err != nil {
			return err
		}
	}
	return nil
}
