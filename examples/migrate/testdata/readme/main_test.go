package main

import (
	"net/http/httptest"
	"strings"
	"testing"
)

func TestInitGreets(t *testing.T) {
	for body, want := range map[string]string{
		`{"id":"1","type":"x","data":{"name":"you"}}`: "hello you",
		`{"id":"1","type":"x","data":7}`:              "cannot unmarshal",
		`{`:                                           "unexpected EOF",
	} {
		w := httptest.NewRecorder()
		RouteMap["CI_DOCKER_INITIALIZE_TASK"].ServeHTTP(w, httptest.NewRequest("POST", "/", strings.NewReader(body)))
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %s", body, w.Body)
		}
	}
}
