package logservice_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/delegate-io/dlite/manager/logservice"
)

// BenchmarkUploadToAFullService measures the archiving of a log when each new log needs the room
// of an old one. The cost must not grow with the number of logs.
func BenchmarkUploadToAFullService(b *testing.B) {
	for _, store := range []string{"memory", "files"} {
		for _, logs := range []int{1_000, 4_000, 16_000} {
			b.Run(fmt.Sprintf("%s/logs=%d", store, logs), func(b *testing.B) { benchFull(b, store, logs) })
		}
	}
}

func benchFull(b *testing.B, store string, logs int) {
	cfg := logservice.Config{Authorize: logservice.Tokens(map[string]string{"acc": token}), MaxLogs: logs}
	if store == "files" {
		cfg.Dir = b.TempDir()
	}
	s, err := logservice.New(cfg)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	n := 0
	upload := func() {
		n++
		req := httptest.NewRequestWithContext(b.Context(), http.MethodPost, fmt.Sprintf("/blob?accountID=acc&key=%d", n), strings.NewReader("{\"out\":\"x\"}\n"))
		req.Header.Set("X-Harness-Token", token)
		w := httptest.NewRecorder()
		if s.ServeHTTP(w, req); w.Code > 299 {
			b.Fatalf("upload %d: %d %s", n, w.Code, w.Body)
		}
	}
	for range logs {
		upload()
	}
	b.ReportAllocs()
	for b.Loop() {
		upload()
	}
}
