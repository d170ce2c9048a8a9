package testbed

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// Registry is an image registry on loopback that serves one image and counts the requests.
// Engines use it without TLS. It implements the part of the distribution protocol that a pull
// needs.
type Registry struct {
	// Host is the address in the form of an image's name.
	Host string
	// Image is a full reference to the image, with the tag 1. The image has the same content
	// as [Image].
	Image string

	mu          sync.Mutex
	manifests   int      // guarded by mu
	failure     string   // guarded by mu
	credentials []string // guarded by mu
	beforeBlobs func()   // guarded by mu; nil does nothing
}

// NewRegistry starts a registry that requires these credentials, or none if user is empty. It
// ends with the test, and its image is removed from the engine.
func (e *Engine) NewRegistry(tb testing.TB, user, password string) *Registry {
	tb.Helper()
	var l net.Listener
	if e.listen != nil {
		var err error
		if l, err = e.listen(); err != nil {
			tb.Fatalf("listen on the engine's loopback: %v", err)
		}
	}
	r := newRegistry(tb, l, user, password)
	tb.Cleanup(func() { e.RemoveImage(tb, r.Image) })
	return r
}

// newRegistry serves on l, or on this process's loopback if l is nil.
func newRegistry(tb testing.TB, l net.Listener, user, password string) *Registry {
	tb.Helper()
	rootfs, err := busyboxTar(tb.Context())
	if err != nil {
		Unavailable(tb, "docker", "%v", err)
	}
	plain, err := io.ReadAll(rootfs)
	if err != nil {
		tb.Fatal(err)
	}
	// The image is different in each registry, so that the engine never has it already.
	layer := compress(tb, plain)
	blobs := map[string][]byte{}
	r := &Registry{}
	mux := http.NewServeMux()
	server := httptest.NewUnstartedServer(r.guard(user, password, mux))
	if l != nil {
		_ = server.Listener.Close()
		server.Listener = l
	}
	server.Start()
	tb.Cleanup(server.Close)
	r.Host = strings.TrimPrefix(server.URL, "http://")
	r.Image = r.Host + "/team/tool:1"

	config := mustJSON(tb, map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"Env": []string{"PATH=/bin"}, "Cmd": []string{"/bin/sh"}, "Labels": map[string]string{"registry": r.Host}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{digest(plain)}},
	})
	blobs[digest(config)], blobs[digest(layer)] = config, layer
	const schema = "application/vnd.docker.distribution.manifest.v2+json"
	manifest := mustJSON(tb, map[string]any{
		"schemaVersion": 2, "mediaType": schema,
		"config": map[string]any{"mediaType": "application/vnd.docker.container.image.v1+json", "size": len(config), "digest": digest(config)},
		"layers": []any{map[string]any{"mediaType": "application/vnd.docker.image.rootfs.diff.tar.gzip", "size": len(layer), "digest": digest(layer)}},
	})

	mux.HandleFunc("GET /v2/{$}", func(w http.ResponseWriter, _ *http.Request) {})
	mux.HandleFunc("GET /v2/team/tool/manifests/{ref}", func(w http.ResponseWriter, req *http.Request) {
		if ref := req.PathValue("ref"); ref != "1" && ref != "latest" && ref != digest(manifest) {
			http.Error(w, `{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}`, http.StatusNotFound)
			return
		}
		r.mu.Lock()
		r.manifests++
		r.mu.Unlock()
		w.Header().Set("Content-Type", schema)
		w.Header().Set("Docker-Content-Digest", digest(manifest))
		_, _ = w.Write(manifest)
	})
	mux.HandleFunc("GET /v2/team/tool/blobs/{digest}", func(w http.ResponseWriter, req *http.Request) {
		blob, ok := blobs[req.PathValue("digest")]
		r.mu.Lock()
		failure, before := r.failure, r.beforeBlobs
		r.mu.Unlock()
		if before != nil {
			before()
		}
		if !ok || failure != "" {
			http.Error(w, `{"errors":[{"code":"DENIED","message":"`+failure+`"}]}`, http.StatusForbidden)
			return
		}
		w.Header().Set("Content-Length", fmt.Sprint(len(blob)))
		_, _ = w.Write(blob)
	})
	return r
}

// Pulls returns how many times the image's manifest was served.
func (r *Registry) Pulls() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.manifests
}

// Credentials returns the "user:password" of all requests that had credentials.
func (r *Registry) Credentials() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.credentials...)
}

// FailBlobs makes every pull fail with message after it has begun.
func (r *Registry) FailBlobs(message string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failure = message
}

// BeforeBlobs makes the registry call f before it answers a request for a blob of the image.
// The calls are concurrent.
func (r *Registry) BeforeBlobs(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.beforeBlobs = f
}

func (r *Registry) guard(user, password string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		u, p, ok := req.BasicAuth()
		if ok {
			r.mu.Lock()
			r.credentials = append(r.credentials, u+":"+p)
			r.mu.Unlock()
		}
		w.Header().Set("Docker-Distribution-Api-Version", "registry/2.0")
		if user != "" && (u != user || p != password) {
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			http.Error(w, `{"errors":[{"code":"UNAUTHORIZED","message":"authentication required"}]}`, http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, req)
	})
}

func compress(tb testing.TB, plain []byte) []byte {
	tb.Helper()
	var buf bytes.Buffer
	z, err := gzip.NewWriterLevel(&buf, gzip.BestSpeed)
	if err != nil {
		tb.Fatal(err)
	}
	if _, err := z.Write(plain); err != nil {
		tb.Fatal(err)
	}
	if err := z.Close(); err != nil {
		tb.Fatal(err)
	}
	return buf.Bytes()
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}

func mustJSON(tb testing.TB, v any) []byte {
	tb.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}
