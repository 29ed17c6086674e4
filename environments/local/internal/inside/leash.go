package inside

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/berth-eval/berth/plugins/sandbox/become"
)

// leash ends the sandbox when the plugin ends.
//
// The kernel clears the death signal of a thread when its ids change
// (commit_creds). So the plugin's own setting at clone would be lost in
// become.Become, which changes the ids. leash therefore makes that change first
// and then sets the signal. The same change in Become later has no effect.
func leash() error {
	if !become.OneID() {
		if err := changeID(); err != nil {
			return err
		}
	}
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("death signal: %w", err)
	}
	// The plugin may have died just before. Then its end of the channel is
	// closed.
	poll := []unix.PollFd{{Fd: Channel, Events: unix.POLLRDHUP}}
	if n, err := unix.Poll(poll, 0); err != nil || n > 0 {
		return errors.Join(errors.New("the plugin has ended"), err)
	}
	return nil
}

// changeID changes this thread to become.OwnID and keeps its capabilities.
func changeID() error {
	if err := unix.Prctl(unix.PR_SET_KEEPCAPS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("keep capabilities: %w", err)
	}
	for _, nr := range []uintptr{unix.SYS_SETRESGID, unix.SYS_SETRESUID} {
		// A raw system call, because the syscall package would change all
		// threads.
		if _, _, errno := unix.RawSyscall(nr, become.OwnID, become.OwnID, become.OwnID); errno != 0 {
			return fmt.Errorf("change to id %d: %w", become.OwnID, errno)
		}
	}
	// The change of user has emptied the effective set.
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&head, &data[0]); err != nil {
		return fmt.Errorf("capget: %w", err)
	}
	for i := range data {
		data[i].Effective = data[i].Permitted
	}
	if err := unix.Capset(&head, &data[0]); err != nil {
		return fmt.Errorf("capset: %w", err)
	}
	return nil
}
