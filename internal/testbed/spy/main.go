// Spy answers questions about the machine that it runs on. Tests use it to see from outside
// the files and processes that a driver left inside a guest. Only the guest images of testbed
// contain it.
//
//	GET /processes?file=environ&text=T   files of /proc that contain the text
//	GET /files?below=DIR&text=T          files below a directory that contain the text
//	GET /paths?pattern=P                 paths that match the pattern
//	GET /read?path=P&bytes=N             the beginning of a file
//	GET /dial?address=A                  whether a connection can be made
//	GET /now                             nanoseconds since 1970
//
// Answers of the first three are lists in JSON.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

func main() {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /processes", processes)
	mux.HandleFunc("GET /files", files)
	mux.HandleFunc("GET /paths", paths)
	mux.HandleFunc("GET /read", read)
	mux.HandleFunc("GET /dial", dial)
	mux.HandleFunc("GET /now", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(w, time.Now().UnixNano())
	})
	server := http.Server{Addr: os.Args[1], Handler: mux, ReadHeaderTimeout: time.Minute}
	log.Fatal(server.ListenAndServe())
}

func processes(w http.ResponseWriter, r *http.Request) {
	file, text := filepath.Base(r.FormValue("file")), []byte(r.FormValue("text"))
	found := []string{}
	matches, _ := filepath.Glob("/proc/[0-9]*/" + file)
	for _, m := range matches {
		if b, err := os.ReadFile(m); err == nil && bytes.Contains(b, text) {
			found = append(found, m)
		}
	}
	answer(w, found)
}

func files(w http.ResponseWriter, r *http.Request) {
	text := []byte(r.FormValue("text"))
	found := []string{}
	err := filepath.WalkDir(r.FormValue("below"), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return nil // removed meanwhile
		}
		if b, err := os.ReadFile(path); err == nil && bytes.Contains(b, text) {
			found = append(found, path)
		}
		return nil
	})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	answer(w, found)
}

func paths(w http.ResponseWriter, r *http.Request) {
	found, err := filepath.Glob(r.FormValue("pattern"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	answer(w, append([]string{}, found...))
}

func read(w http.ResponseWriter, r *http.Request) {
	f, err := os.Open(r.FormValue("path"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	defer f.Close() //nolint:errcheck // it is only read
	limit, err := strconv.ParseInt(strings.TrimSpace(r.FormValue("bytes")), 10, 64)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	_, _ = io.CopyN(w, f, limit)
}

func dial(w http.ResponseWriter, r *http.Request) {
	const enough = 3 * time.Second
	d := net.Dialer{Timeout: enough}
	conn, err := d.DialContext(r.Context(), "tcp", r.FormValue("address"))
	if err == nil {
		_ = conn.Close()
	}
	_, _ = fmt.Fprint(w, err == nil)
}

func answer(w http.ResponseWriter, found []string) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(found)
}
