package stage

// PoolOption is the network option that names the pool of machines of a
// transaction.
const PoolOption = "pool_id"

// InPool returns a copy of the network whose [PoolOption] is pool. An empty pool
// changes nothing.
func (n Network) InPool(pool string) Network {
	if pool == "" {
		return n
	}
	options := map[string]string{PoolOption: pool}
	for k, v := range n.Options {
		if k != PoolOption {
			options[k] = v
		}
	}
	n.Options = options
	return n
}

// ServiceStatus reports how a service of an init on a VM started: Running, or the status
// ERROR with the reason.
type ServiceStatus struct {
	ID           string `json:"identifier"`
	Name         string `json:"name"`
	Image        string `json:"image"`
	LogKey       string `json:"log_key"`
	Status       Status `json:"status"`
	ErrorMessage string `json:"error_message"`
}
