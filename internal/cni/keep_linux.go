package cni

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"golang.org/x/sys/unix"
)

// Keep keeps the plugin in the configuration that is used until the context ends: it adds the plugin again after each
// change by others. Its program must be installed. A configuration that can't be changed now is logged, and tried again
// after its next change.
func (n *Node) Keep(ctx context.Context, log *slog.Logger) error {
	changes, err := watch(n.NetDir)
	if err != nil {
		return err
	}
	defer changes.Close()
	defer context.AfterFunc(ctx, func() { changes.Close() })()
	reported := ""
	buffer := make([]byte, 64<<10)
	for {
		switch changed, err := n.Chain(); {
		case err != nil && err.Error() != reported:
			reported = err.Error()
			log.Warn("Pods that need their redirection do not start until the network configuration can be used",
				"dir", n.NetDir, "error", err)
		case err == nil:
			reported = ""
			if changed != "" {
				log.Info("new Pods are redirected", "file", changed)
			}
		}
		if _, err := changes.Read(buffer); ctx.Err() != nil {
			return nil
		} else if err != nil {
			return fmt.Errorf("watching %s: %w", n.NetDir, err)
		}
	}
}

// watch returns a file from which each change of a folder can be read.
func watch(folder string) (*os.File, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("inotify_init1", err)
	}
	changes := os.NewFile(uintptr(fd), "inotify")
	if _, err := unix.InotifyAddWatch(fd, folder,
		unix.IN_CLOSE_WRITE|unix.IN_MOVE|unix.IN_DELETE|unix.IN_ONLYDIR); err != nil {
		changes.Close()
		return nil, fmt.Errorf("watching %s: %w", folder, err)
	}
	return changes, nil
}
