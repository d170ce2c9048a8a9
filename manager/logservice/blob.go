package logservice

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/go-chi/chi/v5"
)

// uploadPath is where upload links point to.
const uploadPath = "/blob/upload/"

func (s *Server) postBlob(w http.ResponseWriter, r *http.Request) {
	body, err := readBody(w, r, s.cfg.MaxBlob)
	if err == nil {
		err = s.store.upload(idOf(r), body)
	}
	done(w, err)
}

// readBlob answers with the archive: newline-delimited lines.
func (s *Server) readBlob(w http.ResponseWriter, r *http.Request) {
	v, err := s.store.look(idOf(r))
	if err == nil && v.open && !v.hasBlob {
		err = &httpError{http.StatusNotFound, "the log is not archived yet"}
	}
	if err != nil {
		fail(w, err)
		return
	}
	blob := v.blob
	if !v.hasBlob {
		blob = join(v.lines)
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(blob) // the reader's connection is the reader's problem
}

// uploadLink answers with a link that takes the archive without a token.
func (s *Server) uploadLink(w http.ResponseWriter, r *http.Request) {
	link := s.base(r) + uploadPath + s.links.issue(idOf(r))
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(struct {
		Link    string `json:"link"`
		Expires int64  `json:"expires"` // nanoseconds from now
	}{link, int64(s.cfg.LinkTTL)})
}

// base is the URL under which the request found the server.
func (s *Server) base(r *http.Request) string {
	if s.cfg.PublicURL != "" {
		return strings.TrimRight(s.cfg.PublicURL, "/")
	}
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	// What was asked for: http.StripPrefix changes the URL, and not this.
	path, _, _ := strings.Cut(r.RequestURI, "?")
	prefix := strings.TrimSuffix(path, "/blob/link/upload")
	return scheme + "://" + r.Host + prefix
}

// putLink takes the archive that a link is for. The link is used up when the
// whole of it has arrived, so that an upload that broke off can be repeated.
func (s *Server) putLink(w http.ResponseWriter, r *http.Request) {
	link := chi.URLParam(r, "link")
	if _, err := s.links.check(link); err != nil {
		fail(w, err)
		return
	}
	body, err := readBody(w, r, s.cfg.MaxBlob)
	if err != nil {
		fail(w, err)
		return
	}
	g, err := s.links.use(link)
	if err != nil {
		fail(w, err)
		return
	}
	if err := s.store.upload(logID{g.Account, g.Key}, body); err != nil {
		s.links.restore(g)
		fail(w, err)
		return
	}
	w.WriteHeader(http.StatusOK)
}
