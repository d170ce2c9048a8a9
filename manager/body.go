package manager

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
)

// A large body takes several times its size in memory while it is processed. So the manager books large bodies before it reads them, and processes only
// a few of them at a time.

const (
	// largeBody is the size from which a body is large.
	largeBody = 1 << 20
	// maxLarge is the number of large bodies that are processed at a time.
	maxLarge = 2
)

// readBody reads a request's body. It books the size of a large body until the request ends.
func (m *Manager) readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	size := largeBody
	if r.ContentLength > largeBody && r.ContentLength <= m.cfg.MaxBody {
		size = int(r.ContentLength)
		if err := m.bookBody(r, size); err != nil {
			return nil, err
		}
	}
	body := http.MaxBytesReader(w, r.Body, m.cfg.MaxBody)
	var b bytes.Buffer
	if r.ContentLength > 0 {
		b.Grow(min(int(r.ContentLength), size) + bytes.MinRead)
	}
	if _, err := b.ReadFrom(io.LimitReader(body, int64(size))); err != nil {
		return nil, err
	}
	if b.Len() == size && r.ContentLength < 0 { // its size is unknown
		if err := m.bookBody(r, int(m.cfg.MaxBody)); err != nil {
			return nil, err
		}
	}
	if _, err := b.ReadFrom(body); err != nil {
		return nil, err
	}
	if b.Len() >= largeBody {
		return b.Bytes(), m.awaitLarge(r)
	}
	return b.Bytes(), nil
}

// bookBody books a large body until the request ends.
func (m *Manager) bookBody(r *http.Request, size int) error {
	release, err := m.budgets.take(account(r), amounts{budgetBodies: size})
	if err == nil {
		context.AfterFunc(r.Context(), release)
	}
	return err
}

// awaitLarge waits until the large body of a request may be processed. The next one
// waits until processed is called, or until the request ends.
func (m *Manager) awaitLarge(r *http.Request) error {
	select {
	case m.large <- struct{}{}:
		callOf(r).large = sync.OnceFunc(func() { <-m.large })
		context.AfterFunc(r.Context(), callOf(r).large)
		return nil
	case <-r.Context().Done():
		return r.Context().Err()
	case <-m.closing:
		return ErrClosed
	}
}

// processed ends the processing of a request's body. It comes before the answer, which a
// client may delay.
func processed(r *http.Request) {
	if c := callOf(r); c.large != nil {
		c.large()
	}
}

// hold books a held call until release is called. If it reports false, it has already
// answered the request with an error.
func (m *Manager) hold(w http.ResponseWriter, r *http.Request, of resource) (release func(), ok bool) {
	var need amounts
	need[of] = 1
	release, err := m.budgets.take(account(r), need)
	if err != nil {
		writeError(w, err)
	}
	return release, err == nil
}

// bodyError answers a request whose body could not be read.
func bodyError(w http.ResponseWriter, err error) {
	switch {
	case errors.Is(err, ErrBudget), errors.Is(err, ErrClosed):
		writeError(w, err)
	default:
		writeStatus(w, http.StatusBadRequest, "cannot read the whole body: send it again")
	}
}
