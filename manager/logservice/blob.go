package logservice

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/go-chi/chi/v5"

	"github.com/delegate-io/dlite/manager/internal/livelog"
)

// uploadPath is the path of upload links.
const uploadPath = "/blob/upload/"

// contentType is the content type of archives.
const contentType = "application/x-ndjson"

func (s *Server) postBlob(w http.ResponseWriter, r *http.Request) {
	done(w, s.takeBlob(w, r, idOf(r)))
}

// takeBlob archives the body of the request while it arrives.
func (s *Server) takeBlob(w http.ResponseWriter, r *http.Request, id livelog.ID) error {
	if r.ContentLength > s.cfg.MaxBlob {
		return &http.MaxBytesError{Limit: s.cfg.MaxBlob}
	}
	release, err := s.uploads.acquire(r.Context(), id.Account, 1)
	if err != nil {
		return err
	}
	defer release()
	body := bodyReader{http.MaxBytesReader(w, r.Body, s.cfg.MaxBlob)}
	return s.store.upload(r.Context(), id, body, r.ContentLength)
}

// bodyReader marks errors of a request body, to distinguish them from errors of the
// archive.
type bodyReader struct{ r io.Reader }

func (b bodyReader) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = bodyError(err)
	}
	return n, err
}

// readBlob answers with the archive: newline-delimited lines, or their texts. Until
// the archive exists it answers with the content of the stream, if that is complete.
func (s *Server) readBlob(w http.ResponseWriter, r *http.Request) {
	id := idOf(r)
	format, err := formatOf(r, formatLines, formatText)
	if err != nil {
		fail(w, err)
		return
	}
	st, err := s.store.streams.State(r.Context(), id)
	if err != nil && !errors.Is(err, livelog.ErrUnknown) {
		fail(w, err)
		return
	}
	var src io.Reader
	if err == nil && st.Pending() {
		src = s.store.content(r.Context(), id, st)
	} else {
		blob, archiveErr := s.store.archive.open(r.Context(), id)
		switch {
		case archiveErr == nil:
			defer func() { _ = blob.Close() }()
			src = blob
			if format != formatText {
				w.Header().Set("Content-Length", strconv.FormatInt(blob.Size(), 10))
			}
		case errors.Is(archiveErr, livelog.ErrUnknown) && err == nil && st.Open:
			fail(w, &httpError{http.StatusNotFound, "the log is not archived yet"})
			return
		case errors.Is(archiveErr, livelog.ErrUnknown) && err == nil:
			src = strings.NewReader("") // a stream without a line
		default:
			fail(w, archiveErr)
			return
		}
	}
	w.Header().Set("Content-Type", contentType)
	if format == formatText {
		w.Header().Set("Content-Type", textType)
	}
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if format == formatText {
		err = copyText(w, src)
	} else {
		_, err = io.Copy(w, src)
	}
	if err != nil {
		panic(http.ErrAbortHandler) // the client must not take an incomplete answer for a complete one
	}
}

// uploadLink answers with a link through which a client can upload the archive without
// a token.
func (s *Server) uploadLink(w http.ResponseWriter, r *http.Request) {
	link := s.base(r) + uploadPath + s.links.issue(idOf(r))
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(struct {
		Link    string `json:"link"`
		Expires int64  `json:"expires"` // nanoseconds from now
	}{link, int64(s.cfg.LinkTTL)})
}

// base returns the URL through which the client reached the server.
func (s *Server) base(r *http.Request) string {
	if s.cfg.PublicURL != "" {
		return strings.TrimRight(s.cfg.PublicURL, "/")
	}
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	// RequestURI is the requested path: http.StripPrefix changes only the URL.
	path, _, _ := strings.Cut(r.RequestURI, "?")
	prefix := strings.TrimSuffix(path, "/blob/link/upload")
	return scheme + "://" + r.Host + prefix
}

// putLink accepts the archive for an upload link. After an interrupted upload, the
// client may repeat it with the same link, even before the server detects the
// interruption.
func (s *Server) putLink(w http.ResponseWriter, r *http.Request) {
	link := chi.URLParam(r, "link")
	g, err := s.links.check(r.Context(), link)
	if err != nil {
		fail(w, err)
		return
	}
	err = s.takeBlob(w, r, livelog.ID{Account: g.Account, Key: g.Key})
	if err == nil {
		err = s.links.use(r.Context(), g)
	}
	if err != nil {
		fail(w, err)
		return
	}
	w.WriteHeader(http.StatusOK)
}
