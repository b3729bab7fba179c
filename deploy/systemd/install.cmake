# SPDX-License-Identifier: MIT
# Run by `cmake --install`: writes the units with the paths of this installation into
# UNIT_DIR (absolute, without DESTDIR), and CONF, if it is set, to where they look for it, unless
# there is one already.  Wants SOURCE, VERSION_OF_SYSTEMD and UNIT_DIR.
set(BIN ${CMAKE_INSTALL_PREFIX}/bin)
set(DOC ${CMAKE_INSTALL_PREFIX}/share/doc/latentd)
set(ETC /etc/latentd)
if(NOT CMAKE_INSTALL_PREFIX STREQUAL "/usr")
	set(ETC ${CMAKE_INSTALL_PREFIX}/etc/latentd)
endif()
set(RESTART "RestartSec=5s")
if(VERSION_OF_SYSTEMD GREATER_EQUAL 254)
	string(APPEND RESTART "\nRestartSteps=5\nRestartMaxDelaySec=60s")
endif()
file(READ ${SOURCE}/service.common.in COMMON)
string(FIND "${COMMON}" "\n\n" heading)
string(SUBSTRING "${COMMON}" ${heading} -1 COMMON)
string(STRIP "${COMMON}\n" COMMON)
string(CONFIGURE "${COMMON}" COMMON @ONLY)
foreach(unit latentd.service latentd@.service)
	configure_file(${SOURCE}/${unit}.in $ENV{DESTDIR}${UNIT_DIR}/${unit} @ONLY
		FILE_PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
	message(STATUS "Installing: $ENV{DESTDIR}${UNIT_DIR}/${unit}")
endforeach()

if(CONF AND NOT EXISTS "$ENV{DESTDIR}${ETC}/latentd.conf")
	file(INSTALL ${CONF} DESTINATION ${ETC})
endif()
