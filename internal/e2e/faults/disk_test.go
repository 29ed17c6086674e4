package faults

import (
	"errors"
	"fmt"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// diskEnv has a shepherd make a small disk first, for which it is in a mount
// namespace of its own: "folder|size".
const diskEnv = "BERTH_E2E_DISK"

func smallDisk(spec string) error {
	dir, size, ok := strings.Cut(spec, "|")
	if !ok {
		return nil
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("no mounts of our own: %w", err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil && !errors.Is(err, syscall.EBUSY) {
		return fmt.Errorf("no small disk: %w", err)
	}
	return nil
}
