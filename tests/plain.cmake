# Programs without sanitizers. In a build with some, what is not about errors of memory runs with these: tests that kill or
# fork hundreds of times, that limit memory or load a library before all others, and those of scripts, documents and
# formats. Every command and every unit has tests with sanitizers beside them.
#
# REEF_PLAIN_TARGETS are what such a test depends on; reef_plain(VARIABLE TARGET FOLDER) sets where one of the programs is.
set(REEF_PLAIN_TARGETS)
set(plain ${CMAKE_BINARY_DIR}/plain)
if(REEF_SANITIZE)
    include(ExternalProject)
    set(research)
    if(REEF_RESEARCH)
        set(research reef-lab)
    endif()
    ExternalProject_Add(plain_programs SOURCE_DIR ${PROJECT_SOURCE_DIR} BINARY_DIR ${plain} PREFIX ${plain}/external
        CMAKE_ARGS -DCMAKE_BUILD_TYPE=None -DCMAKE_C_FLAGS=-O1 -DREEF_TESTS=ON -DREEF_MPI=${REEF_MPI} -DREEF_RESEARCH=${REEF_RESEARCH}
            -DREEF_FAIL_POINTS=${REEF_FAIL_POINTS} -DCMAKE_C_COMPILER_LAUNCHER=${CMAKE_C_COMPILER_LAUNCHER}
        BUILD_COMMAND ${CMAKE_COMMAND} --build ${plain} --target reef reefd plain ${research}
        INSTALL_COMMAND "" BUILD_ALWAYS ON USES_TERMINAL_BUILD ON)
    set(REEF_PLAIN_TARGETS plain_programs)
endif()
add_custom_target(plain) # what else is built without sanitizers
function(reef_plain variable target folder)
    if(REEF_SANITIZE)
        set(${variable} ${plain}/${folder}/${target} PARENT_SCOPE)
    else()
        add_dependencies(plain ${target})
        set(${variable} $<TARGET_FILE:${target}> PARENT_SCOPE)
    endif()
endfunction()
reef_plain(REEF_PLAIN_REEF reef tools)
reef_plain(REEF_PLAIN_REEFD reefd daemon)
if(REEF_RESEARCH)
    reef_plain(REEF_PLAIN_LAB reef-lab research)
endif()
