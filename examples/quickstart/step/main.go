// Command step is the program of quickstart's container steps. It prints where it runs. It is
// the only file of its image.
package main

import (
	"fmt"
	"os"
	"runtime"
	"strings"
)

func main() {
	host, _ := os.Hostname()
	fmt.Println(strings.Join(os.Args[1:], " "))
	fmt.Printf("host %s, %s/%s, process %d\n", host, runtime.GOOS, runtime.GOARCH, os.Getpid())
	if dir, err := os.Getwd(); err == nil {
		entries, _ := os.ReadDir(dir)
		fmt.Printf("workspace %s, %d entries\n", dir, len(entries))
	}
}
