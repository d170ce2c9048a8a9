package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager/pipeline/internal/store"
)

func TestObjectsAreBoundedByNumberAndBytes(t *testing.T) {
	onBoth(t, func(t *testing.T, database string) {
		s := open(t, database)
		room := store.Room{Count: 2, Bytes: 10}
		put := func(account, id, data string) (int64, error) {
			o := &store.Object{Account: account, Kind: "k", ID: id, Updated: start, Data: []byte(data)}
			err := s.Update(t.Context(), func(tx *store.Tx) error { return tx.Put(o, room) })
			return o.Version, err
		}
		for _, test := range []struct {
			account, id, data string
			version           int64
			err               error
		}{
			{"a", "1", "12345", 1, nil},
			{"a", "1", "123456789", 2, nil}, // it replaces its own bytes
			{"a", "2", "12", 0, store.ErrFull},
			{"a", "2", "1", 1, nil},
			{"a", "3", "", 0, store.ErrFull},
			{"b", "3", "1234567890", 1, nil},
		} {
			version, err := put(test.account, test.id, test.data)
			require.ErrorIs(t, err, test.err, test)
			if err == nil {
				assert.Equal(t, test.version, version, test)
			}
		}
		o, err := s.Object(t.Context(), "a", "k", "1")
		require.NoError(t, err)
		assert.Equal(t, "123456789", string(o.Data))
		assert.True(t, o.Updated.Equal(start))
		heads, err := s.Heads(t.Context(), "a", "k", "1", 10)
		require.NoError(t, err)
		require.Len(t, heads, 1)
		assert.Equal(t, "2", heads[0].ID)
		assert.Empty(t, heads[0].Data)
		remove := func() error {
			return s.Update(t.Context(), func(tx *store.Tx) error { return tx.Delete("a", "k", "2") })
		}
		require.NoError(t, remove())
		require.ErrorIs(t, remove(), store.ErrNotFound)
	})
}

func TestObjectsAreFoundWhenTheyAreDue(t *testing.T) {
	onBoth(t, func(t *testing.T, database string) {
		s := open(t, database)
		require.NoError(t, s.Update(t.Context(), func(tx *store.Tx) error {
			for id, due := range map[string]time.Time{"never": {}, "now": start, "later": start.Add(time.Second)} {
				if err := tx.Put(&store.Object{Account: "a", Kind: "k", ID: id, Due: due}, store.Room{Count: 9, Bytes: 9}); err != nil {
					return err
				}
			}
			return nil
		}))
		due := func(at time.Time) (ids []string) {
			all, err := s.DueObjects(t.Context(), "k", at, 10)
			require.NoError(t, err)
			for _, o := range all {
				ids = append(ids, o.ID)
			}
			return ids
		}
		assert.Empty(t, due(start.Add(-time.Millisecond)))
		assert.Equal(t, []string{"now"}, due(start))
		assert.Equal(t, []string{"now", "later"}, due(start.Add(time.Second)))
	})
}

func TestADeliveryIsKnownByEachOfItsNames(t *testing.T) {
	onBoth(t, func(t *testing.T, database string) {
		s := open(t, database)
		deliver := func(hook, run string, at time.Time, names ...string) (first string, repeated bool) {
			require.NoError(t, s.Update(t.Context(), func(tx *store.Tx) (err error) {
				first, repeated, err = tx.Deliver(store.Delivery{Account: "a", Hook: hook, Names: names, Run: run, At: at})
				return err
			}))
			return first, repeated
		}
		for _, test := range []struct {
			hook, run string
			names     []string
			first     string
			repeated  bool
		}{
			{"h", "1", []string{"id", "body"}, "1", false},
			{"h", "2", []string{"id", "other"}, "1", true},
			{"h", "3", []string{"fresh", "body"}, "1", true},
			{"h", "4", []string{"fresh", "other"}, "4", false}, // repetitions left no names
			{"g", "5", []string{"id", "body"}, "5", false},
		} {
			first, repeated := deliver(test.hook, test.run, start, test.names...)
			assert.Equal(t, test.first, first, test)
			assert.Equal(t, test.repeated, repeated, test)
		}
		require.NoError(t, s.Update(t.Context(), func(tx *store.Tx) error {
			n, err := tx.Deliveries("a", "h", start.Add(-time.Second))
			assert.Equal(t, 2, n)
			return err
		}))
		require.NoError(t, s.ForgetDeliveries(t.Context(), start.Add(time.Second)))
		_, repeated := deliver("h", "6", start, "id")
		assert.False(t, repeated)
	})
}
