package supervisor

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"
)

// killOthers kills all other processes of the PID namespace of this process. It returns when they have
// ended, or after a few seconds: the end of the namespace kills the rest.
func killOthers() {
	const rounds = 2000
	for range rounds {
		if syscall.Kill(-1, syscall.SIGKILL) != nil {
			return // there are none
		}
		if alive, _ := processes(); len(alive) == 0 {
			return
		}
		<-time.After(time.Millisecond)
	}
}

func zombies() []int {
	_, list := processes()
	return list
}

// processes lists the other processes of the PID namespace of this process: those that run, and the
// children of this process that have ended.
func processes() (alive, ended []int) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, nil
	}
	names, _ := dir.Readdirnames(-1)
	_ = dir.Close()
	own := os.Getpid()
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil || pid == own {
			continue
		}
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue
		}
		// The second field is the name of the program in brackets. The name may hold any byte.
		fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
		switch {
		case len(fields) < 2:
		case fields[0][0] != 'Z' && fields[0][0] != 'X':
			alive = append(alive, pid)
		case string(fields[1]) == strconv.Itoa(own):
			ended = append(ended, pid)
		}
	}
	return alive, ended
}
