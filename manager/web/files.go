package web

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"net/http"
	"path"
	"strings"

	"github.com/go-chi/chi/v5"
)

//go:embed assets
var embedded embed.FS

// file is a file of the page.
type file struct {
	plain, zipped []byte
	contentType   string
}

// files are the files of the page. Their path contains a hash of them all, so a browser may keep them.
type files struct {
	version string
	byName  map[string]file
	page    file
}

var contentTypes = map[string]string{
	".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml", ".html": "text/html; charset=utf-8",
}

func newFiles() *files {
	f := &files{byName: map[string]file{}}
	entries, err := embedded.ReadDir("assets")
	if err != nil {
		panic(err) // the files are part of the program
	}
	sum := sha256.New()
	var modules []string
	for _, e := range entries {
		b, err := embedded.ReadFile("assets/" + e.Name())
		if err != nil {
			panic(err)
		}
		_, _ = sum.Write(b)
		f.byName[e.Name()] = newFile(e.Name(), b)
		if strings.HasSuffix(e.Name(), ".js") {
			modules = append(modules, e.Name())
		}
	}
	f.version = hex.EncodeToString(sum.Sum(nil)[:8])
	var preload strings.Builder
	for _, name := range modules { // otherwise the browser finds them one after the other
		preload.WriteString(`<link rel="modulepreload" href="assets/` + f.version + "/" + name + `">` + "\n")
	}
	html := strings.NewReplacer("VERSION", f.version, "<!-- modules -->\n", preload.String()).Replace(string(f.byName["index.html"].plain))
	f.page = newFile("index.html", []byte(html))
	delete(f.byName, "index.html")
	return f
}

func newFile(name string, content []byte) file {
	var zipped bytes.Buffer
	z, err := gzip.NewWriterLevel(&zipped, gzip.BestCompression)
	if err != nil {
		panic(err) // the level is valid
	}
	_, _ = z.Write(content) // a buffer takes everything
	_ = z.Close()
	return file{plain: content, zipped: zipped.Bytes(), contentType: contentTypes[path.Ext(name)]}
}

func (f *file) serve(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", f.contentType)
	h.Set("Vary", "Accept-Encoding")
	body := f.plain
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		h.Set("Content-Encoding", "gzip")
		body = f.zipped
	}
	_, _ = w.Write(body) // the browser loads it again if it did not get all
}

// index serves the page. All its addresses are relative, so its own must end with a slash.
func (f *files) index(w http.ResponseWriter, r *http.Request) {
	full, _, _ := strings.Cut(r.RequestURI, "?")
	if !strings.HasSuffix(full, "/") {
		w.Header().Set("Location", path.Base(full)+"/")
		w.WriteHeader(http.StatusTemporaryRedirect)
		return
	}
	w.Header().Set("Content-Security-Policy", policy)
	w.Header().Set("Cache-Control", "no-cache")
	f.page.serve(w, r)
}

func (f *files) asset(w http.ResponseWriter, r *http.Request) {
	found, ok := f.byName[chi.URLParam(r, "name")]
	if !ok || chi.URLParam(r, "version") != f.version {
		writeError(w, http.StatusNotFound, "the page has no such file: load it again")
		return
	}
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	found.serve(w, r)
}
