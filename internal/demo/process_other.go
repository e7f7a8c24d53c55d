//go:build !linux

package demo

import (
	"errors"
	"syscall"
)

func supported() error {
	return errors.New(
		"the demo runs on Linux only: it uses addresses such as 127.0.1.11, which other systems want configured")
}

func ownGroup() *syscall.SysProcAttr { return nil }

func killFamily(int) {}
