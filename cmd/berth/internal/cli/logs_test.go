package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/rs/zerolog"
)

func TestATraceIsPrintedBelowItsLineAndOnce(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log := zerolog.New(console(&out, true))
	for range 2 {
		log.Error().Str("plugin", "x").Str("traceback", "  File \"a\", line 7\n    return 1/0\x1b[31m\n").Msg("division by zero")
	}
	want := `division by zero plugin=x
    File "a", line 7
      return 1/0�[31m
`
	first, second, _ := strings.Cut(out.String(), "[31m\n")
	if !strings.HasSuffix(first+"[31m\n", want) || !strings.HasSuffix(second, "division by zero plugin=x\n") || strings.Contains(second, "File") {
		t.Errorf("the log is\n%s\nwant a line with\n%s\nand the same line without the trace", out.String(), want)
	}
}
