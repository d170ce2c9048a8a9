package store

// OpenLimited is Open with another bound for the answers of PostgreSQL.
var OpenLimited = openLimited
