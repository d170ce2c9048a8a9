package imds

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The service has the documented form of EC2's: a token by PUT, 404 without a notice, and 401 for an expired token.
func TestNoticesAreFound(t *testing.T) {
	t.Parallel()
	for name, old := range map[string]bool{"with tokens": false, "without tokens": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var turn, tokens atomic.Int64
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch r.Method + " " + r.URL.Path {
				case "PUT /latest/api/token":
					if old {
						w.WriteHeader(http.StatusNotFound)
						return
					}
					assert.Equal(t, "21600", r.Header.Get("X-aws-ec2-metadata-token-ttl-seconds"))
					tokens.Add(1)
					_, _ = w.Write([]byte("not-a-real-token"))
				case "GET /latest/meta-data/spot/instance-action":
					n := turn.Add(1)
					switch {
					case !old && (n == 1 || r.Header.Get("X-aws-ec2-metadata-token") == ""):
						w.WriteHeader(http.StatusUnauthorized) // the first token has expired
					case n == 3:
						_, _ = w.Write([]byte("not JSON"))
					case n < 6:
						w.WriteHeader(http.StatusNotFound)
					default:
						_, _ = w.Write([]byte(`{"action":"terminate","time":"2026-11-23T08:22:00Z"}`))
					}
				case "GET /latest/meta-data/events/recommendations/rebalance":
					if turn.Load() < 4 {
						w.WriteHeader(http.StatusNotFound)
						return
					}
					_, _ = w.Write([]byte(`{"noticeTime":"2026-11-23T08:00:00Z"}`))
				default:
					t.Errorf("%s %s", r.Method, r.URL.Path)
				}
			}))
			defer s.Close()
			var got []Notice
			watch(t.Context(), s.URL+"/", time.Millisecond, func(n Notice) { got = append(got, n) })
			assert.Equal(t, []Notice{
				{Rebalance, time.Date(2026, 11, 23, 8, 0, 0, 0, time.UTC)}, {"terminate", time.Date(2026, 11, 23, 8, 22, 0, 0, time.UTC)},
			}, got)
			if !old {
				assert.EqualValues(t, 2, tokens.Load())
			}
		})
	}
}

func TestAnAbsentServiceIsAskedAgain(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{}, 100)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		select {
		case asked <- struct{}{}:
		default:
		}
		w.WriteHeader(http.StatusInternalServerError)
	}))
	defer s.Close()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		watch(ctx, s.URL, time.Millisecond, func(n Notice) { t.Errorf("%+v", n) })
	}()
	for range 10 {
		<-asked
	}
	stop()
	<-ended
}
