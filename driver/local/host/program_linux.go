package host

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// ownProgram is the path of the program of this process.
const ownProgram = "/proc/self/exe"

// aboveStandard is a number above the numbers of the files that a supervisor begins with: the number must mean the
// program until the supervisor is started.
const aboveStandard = 16

// program is an executable in memory. It is nil if there is none.
type program struct{ file *os.File }

// loadProgram copies an executable to memory that cannot be changed.
func loadProgram(content []byte) (p *program, err error) {
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err := unix.MemfdCreate("dlite-supervisor", flags|unix.MFD_EXEC)
	if errors.Is(err, unix.EINVAL) { // Linux before 6.3
		fd, err = unix.MemfdCreate("dlite-supervisor", flags)
	}
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	first := os.NewFile(uintptr(fd), "program")
	defer func() { err = errors.Join(err, first.Close()) }()
	if _, err := first.Write(content); err != nil {
		return nil, err
	}
	const seals = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	above, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, aboveStandard)
	if err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	return &program{os.NewFile(uintptr(above), "program")}, nil
}

// path returns the path to start. It is valid in this process and in a child that has not begun its program.
func (p *program) path() string {
	if p == nil {
		return ownProgram
	}
	return fmt.Sprintf("/proc/self/fd/%d", p.file.Fd())
}

func (p *program) close() error {
	if p == nil {
		return nil
	}
	return p.file.Close()
}
