package supervisor

import (
	"syscall"
	"unsafe"
)

// fatal are the signals that end a Go program.
var fatal = []syscall.Signal{
	syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGILL, syscall.SIGTRAP, syscall.SIGABRT,
	syscall.SIGBUS, syscall.SIGFPE, syscall.SIGSEGV, syscall.SIGSTKFLT, syscall.SIGSYS,
}

// ignoreSteps makes the kernel drop signals of steps to this process. This process is the init of its PID
// namespace: a signal without a handler cannot end it. So ignoreSteps removes the handlers that the Go
// runtime has installed. It does not let the runtime ignore the signals, because steps would inherit that,
// nor call signal.Notify, which takes 5 ms of CPU time for all signals.
func ignoreSteps() {
	var byDefault [16]uintptr // a struct sigaction of zeros
	const setSize = 8
	for _, s := range fatal {
		_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(s), uintptr(unsafe.Pointer(&byDefault)), 0, setSize, 0, 0)
	}
}
