package upgrade

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

func diesWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// reapInherited waits for the children that this process had before it replaced itself. Nothing else knows them: they
// would stay zombies, which look alive.
func reapInherited() {
	lists, _ := filepath.Glob("/proc/self/task/*/children")
	for _, list := range lists {
		b, _ := os.ReadFile(list)
		for _, id := range bytes.Fields(b) {
			pid, err := strconv.Atoi(string(id))
			if err != nil {
				continue
			}
			if p, err := os.FindProcess(pid); err == nil {
				go func() { _, _ = p.Wait() }() // ends with the child, which this process cannot end
			}
		}
	}
}
